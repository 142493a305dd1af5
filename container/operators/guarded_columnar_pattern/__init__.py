"""Patterns of columns that leave out the rows at which a condition fails, and the matches at which a function fails."""
