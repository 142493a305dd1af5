"""The way of watermarks and idleness through the operators of one chain.

Owner: the task thread. What comes from the inputs goes to the head; what a source or a generator inside the chain makes
goes on behind it. A watermark leaves an operator only when all timers that it makes due have fired, as far as a slice
goes: until then it is pending, and the task takes no input. Must not know gates or slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import Operator
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.graph.job_graph import JobVertex

NEVER = float("inf")


class OperatorTime:
    """Event time behind one operator; the WatermarkTarget of operators that make watermarks."""

    def __init__(self, chain: ChainTime, partitions: Sequence[Partition], children: Sequence[int]) -> None:
        self._chain = chain
        self._partitions = partitions
        self._children = children
        #: The last watermark that came to the operator.
        self.input_watermark = MIN_TIMESTAMP
        #: The last one sent on.
        self.watermark: int = MIN_TIMESTAMP
        self.idle = False

    def emit_watermark(self, watermark: int) -> None:
        """Sends a watermark on; one that is no higher than the last has no effect. Ends idleness."""
        if watermark > self.watermark:
            self.set_idle(False)
            self.forward(watermark)

    def forward(self, watermark: int) -> None:
        """The same without a look at idleness: the status came from upstream."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        self._chain.settle()
        for partition in self._partitions:
            partition.broadcast_control(Watermark(watermark))
        for child in self._children:
            self._chain.deliver(child, watermark)

    def set_idle(self, idle: bool) -> None:
        """Sends a change of status on."""
        if idle == self.idle:
            return
        self.idle = idle
        self._chain.settle()
        for partition in self._partitions:
            partition.broadcast_control(WatermarkStatus(idle))
        for child in self._children:
            self._chain.deliver_status(child, idle)


class ChainTime:
    """Event time of all operators of one subtask."""

    def __init__(
        self,
        vertex: JobVertex,
        operators: Sequence[Operator],
        partitions: Sequence[Partition],
        emit: Callable[[int, Iterable[tuple[Any, int | None]]], int],
        settle: Callable[[], None],
    ) -> None:
        self._operators = operators
        self._emit = emit
        #: Has rows that operators put aside go their way before a control element.
        self.settle = settle
        #: By operator.
        self.behind = tuple(
            OperatorTime(
                self,
                [partition for partition in partitions if partition.edge.source_operator == index],
                sorted({edge.target for edge in vertex.chained_edges if edge.source == index}),
            )
            for index in range(len(operators))
        )
        #: The watermark whose timers the head is firing.
        self._pending: int | None = None

    # ------------------------------------------------------------------ from the inputs to the head

    def begin(self, watermark: int) -> None:
        """The watermark of all inputs together has risen; `proceed` carries it on."""
        self._pending = watermark
        self.behind[0].input_watermark = watermark
        self._emit(0, self._operators[0].on_watermark(watermark))

    def proceed(self, deadline: float) -> bool:
        """Fires timers until `deadline` (perf_counter); True when none is due and the watermark has gone on."""
        if self._pending is None:
            return True
        head = self._operators[0]
        self._emit(0, head.fire_event_timers(deadline))
        if head.event_timers_due:
            return False
        watermark, self._pending = self._pending, None
        self._hand_on(0, watermark)
        return True

    def set_input_idle(self, idle: bool) -> None:
        """All inputs are idle, or one is active again."""
        self.deliver_status(0, idle)

    # ------------------------------------------------------------------ inside the chain

    def end(self) -> None:
        """The source has read its last record: event time is over."""
        self.behind[0].emit_watermark(MAX_TIMESTAMP)

    def deliver(self, index: int, watermark: int) -> None:
        """To a chained operator. Operators with timers are heads, so that nothing is left pending here."""
        self.behind[index].input_watermark = watermark
        operator = self._operators[index]
        self._emit(index, operator.on_watermark(watermark))
        self._emit(index, operator.fire_event_timers(NEVER))
        self._hand_on(index, watermark)

    def deliver_status(self, index: int, idle: bool) -> None:
        """To a chained operator; one that makes watermarks tells its own status."""
        if not self._operators[index].makes_watermarks:
            self.behind[index].set_idle(idle)

    def _hand_on(self, index: int, watermark: int) -> None:
        forwarded = self._operators[index].forwarded_watermark(watermark)
        if forwarded is None:
            return
        if self._operators[index].makes_watermarks:
            self.behind[index].emit_watermark(forwarded)
        else:
            self.behind[index].forward(forwarded)
