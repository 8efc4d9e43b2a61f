"""What a level costs a device, counted and measured, also as the papers count."""
