"""What networks learn: losses, what of an output counts, and how good it is."""
