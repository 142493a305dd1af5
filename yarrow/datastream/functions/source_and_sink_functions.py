"""Functions at the ends of a job: sources that run a loop of their own, and sinks called for each record.

Interfaces alone. A source runs in a thread of its own and is cancelled by another; a sink is called by the thread that
owns the task. Connectors with splits and two-phase commits stand in `yarrow.datastream.connectors`.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class SourceFunction(Function, Generic[T]):
    """A source that runs a loop of its own, in a thread of its own, with parallelism 1."""

    class SourceContext(Protocol[T_contra]):
        """The output of a source function."""

        def collect(self, element: T_contra) -> None:
            """Emit a record without timestamp; waits while the stream is held back."""

        def collect_with_timestamp(self, element: T_contra, timestamp: int) -> None:
            """Emit a record with its event time; waits while the stream is held back."""

        def emit_watermark(self, timestamp: int) -> None:
            """Say that no record before or at this time will follow."""

        def mark_as_temporarily_idle(self) -> None:
            """Say that nothing will come for a while; the next record ends this."""

        def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
            """Return the lock to hold while emitting a record and changing the position it belongs to."""

        def close(self) -> None:
            """End the output; called by the runtime."""

    @abstractmethod
    def run(self, ctx: SourceContext[T]) -> None:
        """Emit records until there are none or `cancel` was called; returning ends the stream."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon; called by another thread, once or more."""


class ParallelSourceFunction(SourceFunction[T]):
    """A SourceFunction that runs with any parallelism."""


class SinkFunction(Function, Generic[IN]):
    """Takes records out of the job."""

    class Context(Protocol):
        """The facts that a sink can ask for about a record."""

        def current_processing_time(self) -> int:
            """Return the machine's time."""

        def current_watermark(self) -> int:
            """Return the event time reached."""

        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    @abstractmethod
    def invoke(self, value: IN, context: Context) -> None:
        """Take a record. After a failure, records since the last checkpoint come again."""

    def finish(self) -> None:
        """Write all records still held back; called once when the input has ended."""
