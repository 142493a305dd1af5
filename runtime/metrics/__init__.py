"""Metrics as they are shown: names and scopes, aggregation, and the Prometheus endpoint."""
