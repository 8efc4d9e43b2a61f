"""Which channels of a wide tensor a narrow one holds: plans of what is kept, and the mean over those who hold it."""
