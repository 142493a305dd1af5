"""DataStreamSink: the end of a stream, on which only the settings of the sink can be changed.

Owner: the thread that builds the program.
"""

from __future__ import annotations

from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.runtime.graph.transformations import SinkTransformation

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """A sink in a program; OperatorSettings lists its settings."""

    def __init__(self, transformation: SinkTransformation) -> None:
        super().__init__(transformation)
