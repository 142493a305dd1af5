"""One module a group of cases; each holds a list named CASES, which the runner finds by itself."""
