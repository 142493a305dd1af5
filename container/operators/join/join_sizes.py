"""JoinSizes: the sizes of both sides of a join as metrics and as state, and a warning when they grow without end.

Owner: the task thread; any thread may read the metrics. A subtask stores its sizes with its range of key groups. One
with other key groups takes its share of each, so behind a rescale the numbers are estimates. Must not know rows.
"""

from __future__ import annotations

import logging
from typing import Final

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext, TimeHolder
from yarrow.container.operators.join.growth_watch import GrowthWatch
from yarrow.container.operators.join.side_size import SideSize, StoredSize
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.data.key_groups import key_group_range_for_operator_index

#: Name of the operator state: key groups and sizes of each subtask.
SIZES = "_join_sizes"
#: Seconds between two looks at the growth.
LOOK_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class JoinSizes:
    """The sizes of one subtask."""

    def __init__(self, context: OperatorContext, span: int) -> None:
        """`span`: length of the spans of time by which rows are counted, in milliseconds."""
        environment = context.environment
        groups = key_group_range_for_operator_index(
            environment.max_parallelism, environment.parallelism, environment.subtask
        )
        self._first, self._last = groups.start, groups.end
        self.left, self.right = SideSize(span), SideSize(span)
        number, spans = Types.LONG(), Types.LIST(Types.TUPLE([Types.LONG(), Types.LONG()]))
        self._state = context.operator_state.union_list_state(
            ListStateDescriptor(
                SIZES, Types.TUPLE([number, number, spans, Types.DOUBLE(), spans, Types.DOUBLE()])
            )
        )
        for first, last, left, left_bytes, right, right_bytes in self._state.get():
            common = min(last, self._last) - max(first, self._first) + 1
            if common > 0:
                share = common / (last - first + 1)
                self.left.restore(StoredSize(left, left_bytes), share)
                self.right.restore(StoredSize(right, right_bytes), share)
        self._operator = context.descriptor.name
        self._clock = environment.clock
        self._watch = GrowthWatch()
        self._next_look = self._clock.monotonic() + LOOK_SECONDS
        for name, side in (("left", self.left), ("right", self.right)):
            context.metric_group.register(f"{name}StateEntries", lambda s=side: s.entries)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateBytes", lambda s=side: s.bytes)  # type: ignore[misc]
            context.metric_group.register(f"{name}StateOldestRow", lambda s=side: s.oldest)  # type: ignore[misc]

    def store(self) -> None:
        """Puts the present sizes into the state."""
        left, right = self.left.stored(), self.right.stored()
        self._state.update([(self._first, self._last, *left, *right)])

    def clear(self) -> None:
        """No row is kept any more."""
        self.left.clear()
        self.right.clear()

    # ------------------------------------------------------------------ growth

    def seconds_until_look(self) -> float:
        """Seconds until `look` has something to do."""
        return self._next_look - self._clock.monotonic()

    def look(self, watermark: int, holder: TimeHolder | None) -> None:
        """Warns when the sides have grown while event time stands; `holder` is who holds it back."""
        now = self._clock.monotonic()
        self._next_look = now + LOOK_SECONDS
        growth = self._watch.look(now, watermark, self.left.entries + self.right.entries)
        if growth is None:
            return
        stands = "has not begun" if watermark == MIN_TIMESTAMP else f"stands at {watermark}"
        _log.warning(
            "operator '%s': event time %s since %d s, and the join has grown from %d to %d rows (left %d, right %d)."
            " No row can leave. %s",
            self._operator,
            stands,
            growth.seconds,
            growth.before,
            growth.now,
            self.left.entries,
            self.right.entries,
            _blame(holder),
        )


def _blame(holder: TimeHolder | None) -> str:
    if holder is None:
        return "All inputs are idle."
    reached = "no watermark" if holder.watermark == MIN_TIMESTAMP else f"the watermark {holder.watermark}"
    return (
        f"The {'second' if holder.input else 'first'} stream holds it back: {reached} has come from"
        f" {holder.producer or 'its producer'}. If that has no records, give its source with_idleness."
    )
