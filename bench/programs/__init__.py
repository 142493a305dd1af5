"""Programs on Yarrow that the cases measure: the public API alone, each run as a process of its own."""
