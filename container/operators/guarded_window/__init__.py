"""Windows that leave out the rows at which reduce or aggregate fails."""
