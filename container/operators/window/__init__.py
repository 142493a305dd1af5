"""Windows: rows gathered by key and window, until a trigger says that a window fires."""
