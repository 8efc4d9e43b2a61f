"""Data sets that are asked for one example at a time."""
