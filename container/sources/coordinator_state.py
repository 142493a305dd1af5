"""CoordinatorState: the bytes of an enumerator's snapshot: its state, and events that readers may not have taken.

Owner: none (functions). The safe codec of plain values writes it, dataclasses by their fields; only values
without such a form are pickled. The form is versioned, because savepoints contain it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from yarrow.container.sources.source_events import Message
from yarrow.runtime.snapshot.errors import StateSerializationError
from yarrow.runtime.snapshot.value_serializers import value_serializer

_VERSION: Final = 1
_STATE_NAME: Final = "split enumerator"


class CoordinatorState(msgspec.Struct):
    """The restored state; `readers` holds (subtask, next number, events) of each reader."""

    parallelism: int
    enumerator: Any
    readers: list[tuple[int, int, list[tuple[int, Message]]]]


def dump_state(state: CoordinatorState, operator_name: str) -> bytes:
    """Encodes the state. Raises StateSerializationError with the operator."""
    readers = [
        [subtask, next_number, [[number, list(message)] for number, message in events]]
        for subtask, next_number, events in state.readers
    ]
    serializer = value_serializer(None, _STATE_NAME, operator_name, allow_pickle=True)
    return serializer.dump_value([_VERSION, state.parallelism, state.enumerator, readers])


def load_state(data: bytes, operator_name: str, *, trusted: bool = True) -> CoordinatorState:
    """Decodes the state; pickled values only if it is `trusted`.

    Raises StateSerializationError for other bytes and later versions.
    """
    serializer = value_serializer(None, _STATE_NAME, operator_name, allow_pickle=True, trusted=trusted)
    decoded = serializer.load_value(data)
    if not isinstance(decoded, list) or not decoded or decoded[0] != _VERSION:
        raise StateSerializationError(
            f"operator '{operator_name}': the snapshot of its split enumerator has another form than version"
            f" {_VERSION}, which this version of Yarrow reads. Restore with the version of Yarrow that wrote"
            " the snapshot"
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
