"""A worker's part in checkpoints: the cut of a task, the hand-over, files, restore, split enumerators."""
