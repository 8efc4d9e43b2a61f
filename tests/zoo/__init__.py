"""Networks as their users write them, small: what any tool that takes a plain module is tested on."""
