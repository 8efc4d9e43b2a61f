"""Plain networks; their only concession to heterogeneity is a `width` argument."""
