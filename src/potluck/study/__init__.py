"""Experiments: read, put together, run, recorded, resumed."""
