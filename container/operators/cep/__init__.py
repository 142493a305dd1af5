"""Complex event processing: patterns looked for among the rows of each key."""
