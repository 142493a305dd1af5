"""Windows of time that overlap, made of slices that each row is added to once."""
