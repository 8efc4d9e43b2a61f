"""A plain network at any width: a recipe for the narrow copy, found from the trace and checked by a run."""
