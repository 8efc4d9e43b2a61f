"""Ways to run a client's training steps, and how the fastest is found."""
