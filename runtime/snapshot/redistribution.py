"""How the state of one operator is divided among another number of subtasks: key groups, lists, broadcast maps.

Owner: none (pure). What is given to a subtask is a selection of existing handles: no byte is read or moved. Order is
kept: elements of a list stay in the order of subtasks and positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from yarrow.runtime.data.key_groups import KeyGroupRange, key_group_range_for_operator_index
from yarrow.runtime.snapshot.handles import (
    KeyedStateHandle,
    NamedOperatorState,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
)


def keyed_handles(state: OperatorState, parallelism: int, subtask: int) -> tuple[KeyedStateHandle, ...]:
    """The handles that hold key groups of the new subtask; other key groups in them are not its own."""
    own = key_group_range_for_operator_index(state.max_parallelism, parallelism, subtask)
    return tuple(
        handle
        for _, subtask_state in sorted(state.subtasks.items())
        for handle in subtask_state.keyed
        if own.intersection(KeyGroupRange(*handle.key_groups)).number_of_key_groups
    )


def operator_handles(state: OperatorState, parallelism: int) -> list[tuple[OperatorStateHandle, ...]]:
    """For each new subtask the operator state it begins with."""
    pieces = [
        (index, handle)
        for index, subtask_state in sorted(state.subtasks.items())
        for handle in subtask_state.operator
    ]
    dealt = _dealt(pieces, parallelism) if parallelism != state.parallelism else None
    return [_of_subtask(pieces, subtask, dealt) for subtask in range(parallelism)]


#: (piece, state within it, element) -> new subtask.
_Dealt = dict[tuple[int, int, int], int]


def _dealt(pieces: Sequence[tuple[int, OperatorStateHandle]], parallelism: int) -> _Dealt:
    """Deals the elements of each list out in runs of equal length, give or take one."""
    places: dict[str, list[tuple[int, int, int]]] = {}
    for piece, (_, handle) in enumerate(pieces):
        for number, named in enumerate(handle.states):
            if named.mode is OperatorStateMode.SPLIT:
                found = places.setdefault(named.name, [])
                found += [(piece, number, element) for element in range(len(named.elements))]
    return {
        place: position * parallelism // len(found)
        for found in places.values()
        for position, place in enumerate(found)
    }


def _of_subtask(
    pieces: Sequence[tuple[int, OperatorStateHandle]], subtask: int, dealt: _Dealt | None
) -> tuple[OperatorStateHandle, ...]:
    copies = _broadcast_sources(pieces, subtask)
    handles = []
    for piece, (index, handle) in enumerate(pieces):
        states: list[NamedOperatorState] = []
        for number, named in enumerate(handle.states):
            if named.mode is OperatorStateMode.UNION:
                states.append(named)
            elif named.mode is OperatorStateMode.BROADCAST:
                if copies[named.name] == piece:
                    states.append(named)
            elif dealt is None:
                if index == subtask:
                    states.append(named)
            else:
                own = tuple(
                    element
                    for position, element in enumerate(named.elements)
                    if dealt[piece, number, position] == subtask
                )
                if own:
                    states.append(msgspec.structs.replace(named, elements=own))
        if states:
            handles.append(msgspec.structs.replace(handle, states=tuple(states)))
    return tuple(handles)


def _broadcast_sources(pieces: Sequence[tuple[int, OperatorStateHandle]], subtask: int) -> dict[str, int]:
    """For each broadcast state the piece whose copy the subtask takes: its own where it had one.

    Records in flight of a broadcast stream are taken from the same old subtask, see `assignment`.
    """
    holders: dict[str, list[tuple[int, int]]] = {}
    for piece, (index, handle) in enumerate(pieces):
        for named in handle.states:
            if named.mode is OperatorStateMode.BROADCAST:
                holders.setdefault(named.name, []).append((index, piece))
    return {
        name: next((piece for index, piece in found if index == subtask), found[subtask % len(found)][1])
        for name, found in holders.items()
    }
