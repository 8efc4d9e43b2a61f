"""A plain network at any width: what the trace found is settled, checked and cut."""
