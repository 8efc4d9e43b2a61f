"""Layers as two factors of low rank: which, of which rank, and the mean of their products."""
