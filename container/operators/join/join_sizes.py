"""JoinSizes: the sizes of both sides of a join as metrics and as state.

Owner: the task thread; any thread may read the metrics. A subtask stores its sizes with its range of key groups. One
with other key groups takes its share of each, so behind a rescale the numbers are estimates. Must not know rows.
"""

from __future__ import annotations

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.join.side_size import SideSize, StoredSize
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.data.key_groups import key_group_range_for_operator_index

#: Name of the operator state: key groups and sizes of each subtask.
SIZES = "_join_sizes"


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
