"""Windows of columnar streams: aggregates of record batches by key and window."""
