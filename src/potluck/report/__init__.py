"""Pictures and tables of runs: they read records and never train."""
