"""Which Python runs a program and its workers: the machine's, one that an option names, or one out of an archive."""
