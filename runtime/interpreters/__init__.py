"""The Python of a program and its workers: the machine's, one that an option names, or one from an archive."""
