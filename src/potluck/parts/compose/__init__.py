"""Weights composed of a shared basis and coefficients of each width's own."""
