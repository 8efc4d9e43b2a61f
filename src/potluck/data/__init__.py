"""Data sets, who holds what of them, and which device is of which level."""
