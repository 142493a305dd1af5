"""DataStreamSink: the end of a stream, on which the settings of the sink can be changed, and its dead letters read.

Owner: the thread that builds the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.runtime.graph.transformations import SinkTransformation, SpecTransformation

__all__ = ["DataStreamSink"]


class DataStreamSink(OperatorSettings):
    """A sink in a program; OperatorSettings lists its settings."""

    def __init__(
        self, transformation: SinkTransformation, letters_of: Callable[[SpecTransformation], Any]
    ) -> None:
        """`letters_of` returns the DataStream of an operator's dead letters; streams import this module."""
        super().__init__(transformation)
        self._letters_of = letters_of

    def dead_letters(self) -> Any:
        """Return the DataStream of DeadLetter of the records that the sink has left out.

        Raises InvalidProgramError if the sink leaves out none: call `on_error("dead_letter")` first.
        """
        return self._letters_of(self.operator_with_letters("dead_letters"))
