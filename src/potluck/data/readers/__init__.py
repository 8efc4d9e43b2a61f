"""Files to tensors: one module per format; every complaint names the file."""
