"""What examples have, kept in memory or read when a batch asks."""
