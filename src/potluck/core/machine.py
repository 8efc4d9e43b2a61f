"""What this machine has."""

from __future__ import annotations

import os


def memory() -> int:
    """The bytes of its memory, whoever uses them."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
