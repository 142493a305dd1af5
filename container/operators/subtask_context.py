"""SubtaskContext: facts about the subtask for its readers and writers.

Owner: the task thread; read-only.
"""

from __future__ import annotations

from collections.abc import Mapping

from yarrow.container.operators.base import OperatorContext


class SubtaskContext:
    """The common part of SourceReaderContext and SinkWriterContext."""

    def __init__(self, context: OperatorContext) -> None:
        self._environment = context.environment

    @property
    def subtask_index(self) -> int:
        """The index of this subtask."""
        return self._environment.subtask

    @property
    def parallelism(self) -> int:
        """The parallelism of the source or sink."""
        return self._environment.parallelism

    @property
    def configuration(self) -> Mapping[str, str]:
        """The job's configuration."""
        return self._environment.configuration
