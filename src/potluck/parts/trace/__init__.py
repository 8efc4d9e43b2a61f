"""Running a network once with marked channels, to see which go together."""
