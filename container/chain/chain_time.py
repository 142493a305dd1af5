"""ChainTime: carries watermarks and idleness through the operators of one chain.

Owner: the task thread. Watermarks of the inputs go to the head; those of a source or generator inside the
chain continue behind it. A watermark leaves an operator only when all timers that are due by it have fired.
As many fire in a slice as fit. Until then the watermark is pending, and the task takes no input. Must not
know gates or slices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import Operator, TimeResults
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Watermark, WatermarkStatus
from yarrow.runtime.graph.job_graph import JobVertex

NEVER = float("inf")


class OperatorTime:
    """Event time behind one operator; the WatermarkTarget of operators that make watermarks."""

    def __init__(self, chain: ChainTime, partitions: Sequence[Partition], children: Sequence[int]) -> None:
        self._chain = chain
        self._partitions = partitions
        self._children = children
        #: The last watermark that reached the operator.
        self.input_watermark = MIN_TIMESTAMP
        #: The last watermark that left the operator.
        self.watermark: int = MIN_TIMESTAMP
        self.idle = False

    def emit_watermark(self, watermark: int) -> None:
        """Forwards a watermark and ends idleness; no effect unless the watermark is higher than the last."""
        if watermark > self.watermark:
            self.set_idle(False)
            self.forward(watermark)

    def forward(self, watermark: int) -> None:
        """Forwards a watermark and keeps idleness: the status came from upstream."""
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        self._chain.settle()
        for partition in self._partitions:
            partition.broadcast_control(Watermark(watermark))
        for child in self._children:
            self._chain.deliver(child, watermark)

    def set_idle(self, idle: bool) -> None:
        """Forwards a change of idleness."""
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
        emit: Callable[[int, TimeResults], int],
        settle: Callable[[], None],
    ) -> None:
        self._operators = operators
        self._emit = emit
        #: Makes operators emit the rows that they hold back, before a control element.
        self.settle = settle
        #: The event time behind each operator.
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
        """Takes a new watermark of all inputs together; `proceed` carries it on."""
        self._pending = watermark
        self.behind[0].input_watermark = watermark
        self._emit(0, self._operators[0].on_watermark(watermark))

    def proceed(self, deadline: float) -> bool:
        """Fires timers until `deadline` (perf_counter); True when none is left and the watermark has moved on."""
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
        """Takes a change of the inputs: all are idle, or one is active again."""
        self.deliver_status(0, idle)

    # ------------------------------------------------------------------ inside the chain

    def end(self) -> None:
        """Ends event time, because the source has read its last record."""
        self.behind[0].emit_watermark(MAX_TIMESTAMP)

    def deliver(self, index: int, watermark: int) -> None:
        """Delivers a watermark to a chained operator. Only heads have timers, so nothing stays pending here."""
        self.behind[index].input_watermark = watermark
        operator = self._operators[index]
        self._emit(index, operator.on_watermark(watermark))
        self._emit(index, operator.fire_event_timers(NEVER))
        self._hand_on(index, watermark)

    def deliver_status(self, index: int, idle: bool) -> None:
        """Delivers idleness to an operator; one that makes watermarks or holds time sends its own status."""
        operator = self._operators[index]
        if operator.holds_time:
            self._emit(index, operator.on_idle(idle))
        elif not operator.makes_watermarks:
            self.behind[index].set_idle(idle)

    def _hand_on(self, index: int, watermark: int) -> None:
        forwarded = self._operators[index].forwarded_watermark(watermark)
        if forwarded is None:
            return
        if self._operators[index].makes_watermarks:
            self.behind[index].emit_watermark(forwarded)
        else:
            self.behind[index].forward(forwarded)
