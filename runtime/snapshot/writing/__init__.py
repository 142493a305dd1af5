"""Savepoints that are made outside of a running job: their folder while several processes write into it."""
