"""Many runs: the papers' experiments, sweeps over settings, and tables of what came out."""
