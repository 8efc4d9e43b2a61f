"""The `potluck` command."""

from __future__ import annotations

import sys
import traceback

import click

from potluck.cli.commands import app
from potluck.cli.show import tell
from potluck.core.errors import PotluckError

INTERRUPTED = 130  # what shells expect of a program ended by Ctrl-C

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line: 0 fine, 2 the user's mistake in one sentence, 1 a fault of ours."""
    sys.exit(outcome())


def outcome() -> int:
    """The exit code of one command, errors told on the way."""
    try:
        return app(standalone_mode=False) or 0
    except PotluckError as error:
        tell([str(error)])
        return 2
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception:
        traceback.print_exc()
        tell(["this is a fault in Potluck, not in what you asked for; please report the above"])
        return 1
