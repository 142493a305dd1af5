"""The bytes of a split enumerator's snapshot: its own state, and the events that readers may not have taken.

Owner: none (functions). Written by the safe codec of plain values, dataclasses by their fields; only what has no such
form is pickled. The form is versioned: it lies in savepoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from yarrow.container.sources.source_events import Message
from yarrow.runtime.snapshot.errors import StateSerializationError
from yarrow.runtime.snapshot.value_serializers import value_serializer

_VERSION: Final = 1
_STATE_NAME: Final = "split enumerator"


@dataclass(slots=True)
class CoordinatorState:
    """What is restored; `readers` holds (subtask, next number, events) of each."""

    parallelism: int
    enumerator: Any
    readers: list[tuple[int, int, list[tuple[int, Message]]]]


def dump_state(state: CoordinatorState, operator_name: str) -> bytes:
    """The state as bytes; raises StateSerializationError naming the operator."""
    readers = [
        [subtask, next_number, [[number, list(message)] for number, message in events]]
        for subtask, next_number, events in state.readers
    ]
    serializer = value_serializer(None, _STATE_NAME, operator_name, allow_pickle=True)
    return serializer.dump_value([_VERSION, state.parallelism, state.enumerator, readers])


def load_state(data: bytes, operator_name: str, *, trusted: bool = True) -> CoordinatorState:
    """The state back, with pickled values only where it is `trusted`.

    Raises StateSerializationError for other bytes and later versions.
    """
    serializer = value_serializer(None, _STATE_NAME, operator_name, allow_pickle=True, trusted=trusted)
    decoded = serializer.load_value(data)
    if not isinstance(decoded, list) or not decoded or decoded[0] != _VERSION:
        raise StateSerializationError(
            f"operator '{operator_name}': the snapshot of its split enumerator has a form that this version does not "
            f"know; it reads version {_VERSION}"
        )
    _, parallelism, enumerator, readers = decoded
    return CoordinatorState(
        parallelism,
        enumerator,
        [
            (subtask, next_number, [(number, tuple(message)) for number, message in events])
            for subtask, next_number, events in readers
        ],
    )
