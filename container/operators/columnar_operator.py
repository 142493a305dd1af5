"""Operators of record batches: the Protocols by which a chain drives them, and their base class.

Owner: the task thread that runs the chain. The chain asks an operator what it can: with `takes_batches` it is a
BatchTarget, with `emits_batches` a BatchEmitter. Nothing here may know chains, edges or state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from yarrow.container.operators.base import Operator
from yarrow.runtime.data.elements import ArrowBatch


class BatchTarget(Protocol):
    """Takes the record batches of one or several inputs; has `takes_batches`.

    The chain passes each result on before it asks for the next, so a generator holds one batch at a time. Mails, a lack
    of credit or a cancel may come between two batches of a generator, and it may never be asked for the next. Timers of
    the operator, input, watermarks and cuts wait for its end. So it may keep what it likes in local variables, except
    for dicts of tables (see ValueTable).

    The task merges watermarks, barriers and ends of several inputs, as it does for row operators.
    """

    def process_input(self, index: int, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        """Processes a batch of input `index`; returns the resulting batches. In the middle of a chain `index` is 0."""
        ...

    def to_rows(self, batch: ArrowBatch) -> tuple[list[Any], list[int | None] | None]:
        """The rows of `batch` and their timestamps, None if it has none; called if `converts_to_rows`."""
        ...


class BatchEmitter(Protocol):
    """Returns record batches when the watermark rises and when timers fire; has `emits_batches`.

    At the head of a chain, the task calls `fire_event_timers` slice by slice until nothing is due. Mails, and barriers
    that overtake, come between two slices. Batches that have left are before such a barrier. The operator must have the
    others in its state. The watermark leaves the operator behind the last batch. In the middle of a chain there is only
    one slice, so the operator should head its chain (ChainingStrategy.HEAD).
    """

    def on_watermark(self, timestamp: int) -> Iterable[ArrowBatch]:
        """Takes a watermark higher than all before; its results here are not cut into slices."""
        ...

    @property
    def event_timers_due(self) -> bool:
        """True while results of the watermark have not been emitted."""
        ...

    def fire_event_timers(self, deadline: float) -> Iterable[ArrowBatch]:
        """Results of the watermark; after `deadline` (perf_counter) the rest waits for the next slice."""
        ...

    def next_timer(self) -> int | None:
        """Epoch ms of the earliest processing-time timer; None = none."""
        ...

    def fire_timers(self, now: int, deadline: float) -> Iterable[ArrowBatch]:
        """Results that are due at `now` (epoch ms); after `deadline` the rest waits for the next slice."""
        ...


class ColumnarOperator(Operator):
    """An operator that takes whole record batches: a BatchTarget."""

    takes_batches = True

    def process_batch(self, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        """Processes a record batch; returns the resulting batches."""
        raise TypeError(f"operator '{self.name}' cannot be the target of record batches")

    def process_input(self, index: int, batch: ArrowBatch) -> Iterable[ArrowBatch]:
        """The same for input `index` of a two-input operator."""
        return self.process_batch(batch)

    def to_rows(self, batch: ArrowBatch) -> tuple[list[Any], list[int | None] | None]:
        """The rows of `batch` and their timestamps, None if it has none; called if `converts_to_rows`."""
        raise TypeError(f"operator '{self.name}' makes no rows of record batches")
