"""What a pipeline of Spark stages declares, and what a stage's function is. Values alone: nothing here knows Spark."""
