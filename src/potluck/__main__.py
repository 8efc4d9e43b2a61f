"""`python -m potluck`: the same as `potluck`."""

from potluck.cli import main

main()
