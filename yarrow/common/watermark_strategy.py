"""WatermarkStrategy: how a stream's timestamps and watermarks are made.

A strategy is an immutable value that travels with the job. Each subtask makes its own generator from it, used
only by the thread that owns the task. Times are milliseconds since the epoch in UTC; MIN_TIMESTAMP stands for
"no watermark yet". Nothing here reads a clock: the runtime passes one in.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Protocol

from yarrow.common.time import Duration, Time, milliseconds_of

__all__ = [
    "MAX_TIMESTAMP",
    "MIN_TIMESTAMP",
    "BoundedOutOfOrdernessWatermarks",
    "NoWatermarksGenerator",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "WatermarksWithIdleness",
]

#: Before every timestamp; also that of a record that has none, and of a stream without event time (Long.MIN of Flink).
MIN_TIMESTAMP: Final = -(1 << 63)
#: After every timestamp: the watermark that ends a stream.
MAX_TIMESTAMP: Final = (1 << 63) - 1


class TimestampAssigner(ABC):
    """Takes the event time out of a record."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Return the event time of `value`.

        `record_timestamp` is the one it has from its source, or MIN_TIMESTAMP.
        """


class WatermarkOutput(Protocol):
    """The output of a watermark generator."""

    def emit_watermark(self, watermark: int) -> None:
        """Say that no record before or at this time is expected any more.

        A lower watermark than before has no effect.
        """

    def mark_idle(self) -> None:
        """Declare this stream idle: it holds back nobody's watermark until it is active again."""

    def mark_active(self) -> None:
        """Say that this stream counts again."""


class WatermarkGenerator(ABC):
    """Makes watermarks from the records it sees."""

    #: True where `on_event` must see every record in turn; False: one call for many records, with any of them and the
    #: greatest of their timestamps, comes to the same. Generators of one's own leave it True.
    needs_each_event: bool = True

    @abstractmethod
    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        """See a record."""

    @abstractmethod
    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        """Be asked for a watermark, once every pipeline.auto-watermark-interval."""


class NoWatermarksGenerator(WatermarkGenerator):
    """Never emits."""

    needs_each_event = False

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


class BoundedOutOfOrdernessWatermarks(WatermarkGenerator):
    """Stays behind the greatest timestamp by a fixed time and one millisecond.

    The millisecond is there because another record with the greatest timestamp may still come. Before the
    first record nothing is emitted.
    """

    needs_each_event = False

    def __init__(self, max_out_of_orderness_ms: int) -> None:
        if max_out_of_orderness_ms < 0:
            raise ValueError(f"out-of-orderness must not be negative: {max_out_of_orderness_ms} ms")
        self._delay = max_out_of_orderness_ms + 1
        self._greatest: int | None = None

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        if self._greatest is None or event_timestamp > self._greatest:
            self._greatest = event_timestamp

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._greatest is not None:
            output.emit_watermark(max(self._greatest - self._delay, MIN_TIMESTAMP))


class WatermarksWithIdleness(WatermarkGenerator):
    """Marks the stream idle after a time without records and active at the next one.

    The time is counted from the first periodic call without a record since the call before. So an idle stream
    is noticed between one and two intervals late, never early.
    """

    def __init__(
        self, generator: WatermarkGenerator, idle_timeout_ms: int, processing_time: Callable[[], int]
    ) -> None:
        self._generator = generator
        self.needs_each_event = generator.needs_each_event
        self._idle_timeout_ms = idle_timeout_ms
        self._processing_time = processing_time
        self._saw_event = False
        self._quiet_since: int | None = None
        self._idle = False

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self._saw_event = True
        if self._idle:
            self._idle = False
            output.mark_active()
        self._generator.on_event(event, event_timestamp, output)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        if self._idle:
            return
        if self._saw_event:
            self._saw_event = False
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self._processing_time()
        elif self._processing_time() - self._quiet_since >= self._idle_timeout_ms:
            self._quiet_since = None
            self._idle = True
            output.mark_idle()
            return
        self._generator.on_periodic_emit(output)


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """The rule by which a source waits for the slowest source of its group. Times are in milliseconds."""

    watermark_group: str
    max_allowed_watermark_drift: int
    update_interval: int


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """A rule for the watermarks of a stream: generator, timestamp assigner, and when the stream counts as idle.

    `timestamp_column` names the column that has the timestamps of record batches.

    Made by `for_monotonous_timestamps`, `for_bounded_out_of_orderness`, `for_generator` or `no_watermarks`;
    the `with_*` methods return a changed copy.
    """

    generator_factory: Callable[[], WatermarkGenerator]
    timestamp_assigner: TimestampAssigner | None = None
    idle_timeout_ms: int | None = None
    alignment: WatermarkAlignment | None = None
    timestamp_column: str | None = None

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Return the strategy for timestamps that never go back within a subtask of the source."""
        return WatermarkStrategy(_BoundedOutOfOrdernessFactory(0))

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Duration | Time | timedelta) -> WatermarkStrategy:
        """Return the strategy for records that are late by `max_out_of_orderness` at most."""
        return WatermarkStrategy(
            _BoundedOutOfOrdernessFactory(milliseconds_of(max_out_of_orderness, "max_out_of_orderness"))
        )

    @staticmethod
    def for_generator(generator_factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Return the strategy with the user's own generators; the factory is called once for each subtask."""
        return WatermarkStrategy(generator_factory)

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Return the strategy of a stream without event time."""
        return WatermarkStrategy(NoWatermarksGenerator)

    def with_timestamp_assigner(self, timestamp_assigner: TimestampAssigner) -> WatermarkStrategy:
        """Return the strategy with this assigner in place of the timestamps of the source."""
        if not isinstance(timestamp_assigner, TimestampAssigner):
            raise TypeError(f"expected a TimestampAssigner, got {type(timestamp_assigner).__name__}")
        return replace(self, timestamp_assigner=timestamp_assigner, timestamp_column=None)

    def with_timestamp_column(self, column: str) -> WatermarkStrategy:
        """Return the strategy for record batches that takes timestamps from a column, in place of an assigner.

        The column has timestamps of any unit, or epoch milliseconds as integers. Raises ValueError for an empty name.
        """
        if not isinstance(column, str) or not column:
            raise ValueError(f"with_timestamp_column takes the name of a column, not {column!r}")
        return replace(self, timestamp_assigner=None, timestamp_column=column)

    def with_idleness(self, idle_timeout: Duration | Time | timedelta) -> WatermarkStrategy:
        """Return the strategy that marks a stream idle after this time without records.

        Raises ValueError unless the time is at least a millisecond.
        """
        timeout = milliseconds_of(idle_timeout, "idle_timeout")
        if timeout < 1:
            raise ValueError(f"idle_timeout must be at least 1 ms, not {timeout} ms")
        return replace(self, idle_timeout_ms=timeout)

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Duration | Time | timedelta,
        update_interval: Duration | Time | timedelta | None = None,
    ) -> WatermarkStrategy:
        """Return the strategy whose source waits while it is further ahead of its group's slowest than this.

        The group is compared every `update_interval`, by default once a second. An idle source does not count. Raises
        ValueError for a group without a name, a negative drift, and an interval below a millisecond.
        """
        if not isinstance(watermark_group, str) or not watermark_group:
            raise ValueError(f"watermark_group must be a non-empty text, not {watermark_group!r}")
        drift = milliseconds_of(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        interval = 1_000 if update_interval is None else milliseconds_of(update_interval, "update_interval")
        if drift < 0:
            raise ValueError(f"max_allowed_watermark_drift must not be negative: {drift} ms")
        if interval < 1:
            raise ValueError(f"update_interval must be at least 1 ms, not {interval} ms")
        return replace(self, alignment=WatermarkAlignment(watermark_group, drift, interval))

    @property
    def makes_watermarks(self) -> bool:
        """Whether the strategy does anything but assign timestamps: generators are made only where it does."""
        return self.generator_factory is not NoWatermarksGenerator or self.idle_timeout_ms is not None

    @property
    def has_generator(self) -> bool:
        """Whether the strategy has a generator that may emit watermarks."""
        return self.generator_factory is not NoWatermarksGenerator

    @property
    def has_own_generator(self) -> bool:
        """Whether the program has written the generator."""
        return self.max_out_of_orderness_ms is None and self.generator_factory is not NoWatermarksGenerator

    @property
    def max_out_of_orderness_ms(self) -> int | None:
        """By how much a record may be behind the greatest timestamp; None where only the generator knows it."""
        factory = self.generator_factory
        return factory.max_out_of_orderness_ms if isinstance(factory, _BoundedOutOfOrdernessFactory) else None

    @property
    def needs_timestamps(self) -> bool:
        """Whether assign_timestamps_and_watermarks refuses a record without a timestamp.

        The strategies made here need a timestamp; custom generators may look at the record itself.
        """
        return isinstance(self.generator_factory, _BoundedOutOfOrdernessFactory)

    def create_watermark_generator(self, processing_time: Callable[[], int]) -> WatermarkGenerator:
        """Make the generator of one subtask; `processing_time` returns the present in milliseconds."""
        generator = self.generator_factory()
        if self.idle_timeout_ms is None:
            return generator
        return WatermarksWithIdleness(generator, self.idle_timeout_ms, processing_time)


@dataclass(frozen=True, slots=True)
class _BoundedOutOfOrdernessFactory:
    """Makes the generator; a class so that a strategy pickles and compares."""

    max_out_of_orderness_ms: int

    def __post_init__(self) -> None:
        if self.max_out_of_orderness_ms < 0:
            raise ValueError(f"out-of-orderness must not be negative: {self.max_out_of_orderness_ms} ms")

    def __call__(self) -> WatermarkGenerator:
        return BoundedOutOfOrdernessWatermarks(self.max_out_of_orderness_ms)
