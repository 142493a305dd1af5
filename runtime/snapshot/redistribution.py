"""Redistribution: divides an operator's state among another number of subtasks: key groups, lists, broadcast maps.

Owner: none (pure). A subtask gets a selection of existing handles: no byte is read or moved. Order is kept:
elements of a list stay in the order of subtasks and positions.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from yarrow.runtime.data.key_groups import key_group_range_for_operator_index
from yarrow.runtime.snapshot.handles import (
    KeyedStateHandle,
    NamedOperatorState,
    OperatorState,
    OperatorStateHandle,
    OperatorStateMode,
)


def keyed_handles(state: OperatorState, parallelism: int) -> list[tuple[KeyedStateHandle, ...]]:
    """For each new subtask, the handles with key groups of its own; other groups in them are not its own."""
    handles = [handle for _, subtask in sorted(state.subtasks.items()) for handle in subtask.keyed]
    if not handles:
        return [()] * parallelism
    ranges = [
        key_group_range_for_operator_index(state.max_parallelism, parallelism, subtask)
        for subtask in range(parallelism)
    ]
    return [
        tuple(handle for handle in handles if handle.key_groups[0] <= end and start <= handle.key_groups[1])
        for start, end in ranges
    ]


def operator_handles(state: OperatorState, parallelism: int) -> list[tuple[OperatorStateHandle, ...]]:
    """For each new subtask, its initial operator state."""
    pieces: list[OperatorStateHandle] = []
    #: By new subtask: piece -> the states taken from it.
    taken: list[dict[int, list[NamedOperatorState]]] = [{} for _ in range(parallelism)]
    lists: dict[str, list[tuple[int, NamedOperatorState]]] = {}
    maps: dict[str, list[tuple[int, int, NamedOperatorState]]] = {}
    for index, subtask_state in sorted(state.subtasks.items()):
        for handle in subtask_state.operator:
            piece = len(pieces)
            pieces.append(handle)
            for named in handle.states:
                if named.mode is OperatorStateMode.UNION:
                    for of_subtask in taken:
                        of_subtask.setdefault(piece, []).append(named)
                elif named.mode is OperatorStateMode.BROADCAST:
                    maps.setdefault(named.name, []).append((index, piece, named))
                elif parallelism == state.parallelism:
                    taken[index].setdefault(piece, []).append(named)
                else:
                    lists.setdefault(named.name, []).append((piece, named))
    for parts in lists.values():
        for subtask, piece, named in _dealt(parts, parallelism):
            taken[subtask].setdefault(piece, []).append(named)
    for copies in maps.values():
        for subtask, of_subtask in enumerate(taken):
            _, piece, named = _copy_for(subtask, copies)
            of_subtask.setdefault(piece, []).append(named)
    return [
        tuple(
            msgspec.structs.replace(pieces[piece], states=tuple(states))
            for piece, states in sorted(of_subtask.items())
        )
        for of_subtask in taken
    ]


def _dealt(
    parts: list[tuple[int, NamedOperatorState]], parallelism: int
) -> Iterator[tuple[int, int, NamedOperatorState]]:
    """Divides the elements of one list into runs of nearly equal length: (subtask, piece, elements)."""
    total = sum(len(named.elements) for _, named in parts)
    first = 0
    for piece, named in parts:
        count = len(named.elements)
        at = 0
        while at < count:
            subtask = (first + at) * parallelism // total
            # The first position behind those of the subtask.
            end = min(count, -(-(subtask + 1) * total // parallelism) - first)
            yield subtask, piece, msgspec.structs.replace(named, elements=named.elements[at:end])
            at = end
        first += count


def _copy_for(
    subtask: int, copies: list[tuple[int, int, NamedOperatorState]]
) -> tuple[int, int, NamedOperatorState]:
    """The copy of a broadcast map for a subtask: its own if it had one.

    Records in flight of a broadcast stream come from the same old subtask, see `assignment`.
    """
    for copy in copies:
        if copy[0] == subtask:
            return copy
    return copies[subtask % len(copies)]
