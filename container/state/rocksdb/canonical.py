"""Canonical: converts the entries of a database to the canonical form of keyed state, for savepoints.

Owner: the snapshot thread, over a linked copy of the database that nobody writes to. Entries of a state are
read in the order of key groups and keys. They are returned in pieces, so that little is in memory at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rocksdict import Rdict, ReadOptions

from yarrow.container.state.heap_sections import FrozenSection
from yarrow.container.state.rocksdb.keys import GROUP_BYTES, group_of, group_start, window_start
from yarrow.container.state.rocksdb.list_store import NUMBER_BYTES
from yarrow.container.state.rocksdb.values import StateValues, access_time
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.keys import decode_key_from
from yarrow.runtime.data.map_keys import map_key
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.runtime.snapshot.key_group_form import Run, StateForm, divided_runs

#: Entries that are read before a piece is returned.
_PIECE: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredForm:
    """A state's form in the database, and its canonical form."""

    form: StateForm
    values: StateValues
    #: Content that was accessed at or before this time (epoch ms) has expired and is left out; None = nothing
    #: has.
    deadline: int | None = None
    #: The window of an entry stands before its key.
    by_window: bool = False


def runs_of_state(number: int, stored: StoredForm, entries: Rdict, groups: KeyGroupRange) -> Iterator[Run]:
    """The runs of one state, key group by key group."""
    bounds = ReadOptions()
    bounds.set_iterate_upper_bound(group_start(groups.end + 1))
    items = entries.items(from_key=group_start(groups.start), read_opt=bounds)
    if stored.by_window:
        yield from _runs_by_window(number, stored, items)
        return
    keys: list[Any] = []
    contents: list[Any] = []
    group, prefix, seen = -1, b"", 0
    for database_key, data in items:
        assert isinstance(database_key, bytes)
        if stored.deadline is not None and access_time(data) <= stored.deadline:
            continue
        if not prefix or not database_key.startswith(prefix):
            # Of another key: the collected entries may be returned.
            if keys and (group_of(database_key) != group or seen >= _PIECE):
                yield Run(number, group, keys, contents)
                keys, contents, seen = [], [], 0
            group = group_of(database_key)
            key, end = decode_key_from(database_key, GROUP_BYTES)
            prefix = database_key[:end]
            keys.append(key)
            contents.append(_empty(stored.form.kind))
        _add(stored, contents, database_key[len(prefix) :], data)
        seen += 1
    if keys:
        yield Run(number, group, keys, contents)


def _runs_by_window(number: int, stored: StoredForm, items: Iterator[tuple[Any, Any]]) -> Iterator[Run]:
    """The same of entries by window: each is a map of one window, so a key comes once for each of its windows."""
    keys: list[Any] = []
    contents: list[Any] = []
    group, prefix, window = -1, b"", None
    load, deadline = stored.values.load, stored.deadline
    for database_key, data in items:
        if deadline is not None and access_time(data) <= deadline:
            continue
        if not prefix or not database_key.startswith(prefix):
            if keys and group_of(database_key) != group:
                yield Run(number, group, keys, contents)
                keys, contents = [], []
            group = group_of(database_key)
            window, start = window_start(database_key)
            window, prefix = map_key(window), database_key[:start]
        keys.append(decode_key_from(database_key, len(prefix))[0])
        contents.append({window: load(data)})
        if len(keys) >= _PIECE:
            yield Run(number, group, keys, contents)
            keys, contents = [], []
    if keys:
        yield Run(number, group, keys, contents)


def _empty(kind: StateKind) -> Any:
    return [] if kind is StateKind.LIST else {} if kind is StateKind.MAP else None


def _add(stored: StoredForm, contents: list[Any], rest: bytes, data: bytes) -> None:
    value = stored.values.load(data)
    if stored.form.kind is StateKind.LIST:
        assert len(rest) == NUMBER_BYTES
        contents[-1].append(value)
    elif stored.form.kind is StateKind.MAP:
        assert stored.form.map_key is not None
        contents[-1][map_key(stored.form.map_key.load_value(rest))] = value
    else:
        contents[-1] = value


def runs_of_section(
    form: StateForm, number: int, section: FrozenSection, max_parallelism: int
) -> Iterator[Run]:
    """The runs of an operator's own section: timers, arrays. `number`: that of its form in the snapshot."""
    for keys, values in section.pieces:
        runs = divided_runs(form, number, keys, values, max_parallelism)
        # No reference here keeps the lists alive while the piece is written.
        del keys, values
        yield from runs
