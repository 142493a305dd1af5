"""What readers and writers may know of the subtask that they are part of.

Owner: the task thread; read-only.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.container.operators.base import OperatorContext


class SubtaskContext:
    """The part that SourceReaderContext and SinkWriterContext have in common."""

    def __init__(self, context: OperatorContext) -> None:
        self._environment = context.environment

    @property
    def subtask_index(self) -> int:
        """This subtask."""
        return self._environment.subtask

    @property
    def parallelism(self) -> int:
        """Of the source or sink."""
        return self._environment.parallelism

    @property
    def configuration(self) -> Mapping[str, str]:
        """The job's configuration."""
        return self._environment.configuration
