"""How a worker takes part in checkpoints: the cut of a task, the hand-over, the files, restore, split enumerators."""
