"""Yarrow: a stream processor for Python programs with Flink's model, native on Hadoop YARN."""

__version__ = "0.1.0"
