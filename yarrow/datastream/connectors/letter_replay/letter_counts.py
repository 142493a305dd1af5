"""LetterCounts: counts the letters that were replayed, and those that went aside again, each once over restarts.

Owner: the task's thread of its only subtask. The counts live in checkpoints; accumulators show them to the client.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from yarrow.common.accumulators import IntCounter
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.functions import (
    CheckpointedFunction,
    FilterFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
)
from yarrow.datastream.state import ListStateDescriptor

#: What is counted; accumulators bear these names before the uid.
REPLAYED = "dead letters replayed: "
REFUSED = "dead letters refused again: "
SHOWN = "dead letters without record: "

_COUNTS: ListStateDescriptor[tuple[str, int]] = ListStateDescriptor(
    "letter-counts", Types.TUPLE([Types.STRING(), Types.LONG()])
)


class LetterCounts(FilterFunction[Any], CheckpointedFunction):
    """Takes numbers of replayed letters and letters that went aside again, and lets nothing pass."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._context: RuntimeContext

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Go on from the counts of the checkpoint."""
        self._state = context.get_operator_state_store().get_list_state(_COUNTS)
        self._counts = Counter(dict(self._state.get()))

    def open(self, runtime_context: RuntimeContext) -> None:
        """Show the restored counts."""
        self._context = runtime_context
        for name, number in self._counts.items():
            runtime_context.add_accumulator(name, IntCounter(number))

    def filter(self, value: Any) -> bool:
        """Count a value."""
        if isinstance(value, DeadLetter):
            self._add(REFUSED + value.operator, 1)
        else:
            uid, replayed, refused, shown = value
            self._add(REPLAYED + uid, replayed)
            self._add(REFUSED + uid, refused)
            self._add(SHOWN + uid, shown)
        return False

    def _add(self, name: str, number: int) -> None:
        if name not in self._counts:
            self._context.add_accumulator(name, IntCounter())
        self._counts[name] += number
        self._context.get_accumulator(name).add(number)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put the counts into the checkpoint."""
        self._state.update(list(self._counts.items()))
