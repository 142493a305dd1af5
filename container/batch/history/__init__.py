"""The history of a stream in batch mode: time of a key, and the state that is kept."""
