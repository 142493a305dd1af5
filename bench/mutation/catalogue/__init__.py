"""The mutants: one module an area, each with `MUTANTS`."""
