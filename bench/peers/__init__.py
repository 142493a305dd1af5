"""Programs to compare with, each run as a script of its own."""
