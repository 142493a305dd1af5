"""HeapSnapshot: writes the frozen tables of a heap snapshot shard by shard in the canonical form.

Owner: the snapshot thread in `write`; any thread elsewhere. No step holds the interpreter for longer than a
piece of some ten thousand entries. As soon as a shard is written or copied, the task thread is asked to take
it back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.frozen_shard import PIECE, FrozenShard
from yarrow.container.state.frozen_windows import FrozenWindows
from yarrow.container.state.heap_sections import FrozenSection
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.pacing import Pacing
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.snapshot.errors import writing_states
from yarrow.runtime.snapshot.handles import KeyedStateHandle, KeyGroupsSnapshot, StateKind, StateMetaInfo
from yarrow.runtime.snapshot.key_group_form import (
    Contents,
    EncodedRun,
    Run,
    StateForm,
    ValuesByWindow,
    divided_runs,
    write_key_groups,
)
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.value_serializers import value_serializer

#: Keys and contents of a table.
Entries = tuple[list[Any], list[Any]]
#: Keys and contents of a state.
Piece = tuple[list[Any], Contents]
#: Entries of small shards that are divided by key group together. Fewer runs write less, but more entries
#: than this fit into no near cache.
GATHERED = 2 * PIECE
#: The same for windows, whose many small tables make more and smaller runs. With another piece they stay below
#: MAX_PART, so that one piece is encoded at once.
GATHERED_BY_WINDOW = 10 * PIECE
#: Bytes that are written at once. Each write or hash releases the interpreter, and in a shared one the thread
#: then waits for its turn.
BLOCK = 1 << 17


class FrozenTable(msgspec.Struct, frozen=True):
    """A table at a cut."""

    table: HeapTable
    #: (index for HeapTable.release, content) of each shard.
    shards: Sequence[tuple[int, FrozenShard]]


class FrozenStateByWindow(msgspec.Struct, frozen=True):
    """The windows of a state at a cut."""

    windows: FrozenWindows[Any]
    #: What a window is stored as.
    stored: Callable[[Any], Any]


class FrozenState(msgspec.Struct, frozen=True):
    """A state as it was at a cut: one table, or windows."""

    registration: StateRegistration
    tables: Sequence[FrozenTable]
    by_window: FrozenStateByWindow | None = None


class HeapPendingSnapshot:
    """See PendingKeyedSnapshot.

    `carried` are states without a user in this program, numbered behind states and sections.
    """

    def __init__(
        self,
        context: KeyedBackendContext,
        cut: int,
        states: Sequence[FrozenState],
        sections: Sequence[FrozenSection],
        carried: tuple[list[StateMetaInfo], list[EncodedRun]],
    ) -> None:
        self._context = context
        self._cut = cut
        self._states = states
        self._tables = [table for state in states for table in state.tables]
        self._windows = [state.by_window.windows for state in states if state.by_window is not None]
        self._sections = sections
        self._carried = carried
        #: Written shards that must return to their tables.
        self._due: deque[tuple[HeapTable, int]] = deque()

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """See PendingKeyedSnapshot."""
        handles = self._write(output)
        for windows in self._windows:
            self._context.post(windows.end)
        return handles

    def _write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        self._copy_ahead()
        registrations = [frozen.registration for frozen in self._states]
        registrations += [section.registration for section in self._sections]
        forms = [state_form(state, self._context.operator_name) for state in registrations]
        metas, carried = self._carried
        evidence = KeyEvidence(self._context.key_type, self._context.key_columns)
        runs = evidence.of_runs(self._runs(forms))
        first = next(runs, None)
        if first is None and not carried:
            return ()
        begun = () if first is None else (first,)
        with writing_states([*(form.name for form in forms), *(meta.name for meta in metas)]):
            carried_on = evidence.of_encoded(carried)
            handle = output.write(_in_blocks(write_key_groups(forms, chain(begun, runs), carried_on)))
        key_groups = self._context.key_groups
        return (
            KeyGroupsSnapshot(
                key_groups=(key_groups.start, key_groups.end),
                states=(*(form.meta() for form in forms), *metas),
                handle=handle,
                key_type=evidence.spec(),
                key_columns=evidence.columns(),
            ),
        )

    def discard(self) -> None:
        """See PendingKeyedSnapshot."""
        for frozen in self._tables:
            for index, _ in frozen.shards:
                self._give_back(frozen.table, index)
        for windows in self._windows:
            for _, table, index, _ in windows.abandon():
                self._give_back(table, index)
            self._context.post(windows.end)

    def _copy_ahead(self) -> None:
        """Returns first dicts before anything is written: each key that changes meanwhile must be merged later."""
        for frozen in self._tables:
            for index, shard in frozen.shards:
                if shard.is_copied_ahead:
                    shard.copy_ahead()
                    self._give_back(frozen.table, index)

    def _runs(self, forms: Sequence[StateForm]) -> Iterator[Run]:
        """All runs; the content of a piece is released only when the consumer asks for the next."""
        parts: list[Iterable[tuple[list[Any], Contents]]] = [
            self._state_pieces(frozen) for frozen in self._states
        ]
        parts += [section.pieces for section in self._sections]
        pacing = Pacing()
        max_parallelism = self._context.max_parallelism
        for state, pieces in enumerate(parts):
            for keys, contents in pieces:
                runs = divided_runs(forms[state], state, keys, contents, max_parallelism)
                # No reference here keeps the lists alive while the piece is written.
                del keys, contents
                for run in runs:
                    yield run
                    if pacing.step():
                        self._give_back_some()
        while self._due:
            self._give_back(*self._due.popleft())

    def _give_back_some(self) -> None:
        """Returns shards in pieces of `entries` entries, with at least one shard.

        Merging a piece takes the task thread milliseconds, which is one gap for the task. The next piece
        follows after a rest. If pieces come faster, each has a quarter of the entries.
        """
        entries, kept = 0, len(self._due) * 3 // 4
        while self._due and (entries < PIECE or len(self._due) > kept):
            table, index = self._due.popleft()
            entries += table.entries_below(index)
            self._give_back(table, index)

    def _state_pieces(self, state: FrozenState) -> Iterator[Piece]:
        """Keys and contents of a state; shards return to their tables once they are written."""
        keep = _keeper(state.registration)
        by_window = state.registration.by_window
        enough = GATHERED_BY_WINDOW if by_window else GATHERED
        gathered = _Gathered(by_window)
        taken: list[tuple[HeapTable, int]] = []
        for window, pieces, source in _parts(state):
            for piece in pieces:
                gathered.add(window, *piece)
                # No reference here keeps the lists alive while they are written.
                piece = ([], [])
                if len(gathered.keys) >= enough:
                    yield keep(*gathered.take())
                    self._due += taken
                    taken = []
            if source is not None:
                taken.append(source)
        if gathered.keys:
            yield keep(*gathered.take())
        self._due += taken

    def _give_back(self, table: HeapTable, index: int) -> None:
        self._context.post(partial(table.release, self._cut, index))


class _Gathered:
    """Keys and values that are divided together."""

    def __init__(self, by_window: bool) -> None:
        self._by_window = by_window
        self._clear()

    def _clear(self) -> None:
        self.keys: list[Any] = []
        self._values: list[Any] = []
        self._windows: list[Any] = []
        self._counts: list[int] = []

    def add(self, window: Any, keys: list[Any], values: list[Any]) -> None:
        """Adds entries of a window."""
        self.keys += keys
        self._values += values
        self._windows.append(window)
        self._counts.append(len(keys))

    def take(self) -> Piece:
        """Takes all out."""
        keys, values, windows, counts = self.keys, self._values, self._windows, self._counts
        self._clear()
        return keys, ValuesByWindow(windows, counts, values) if self._by_window else values


def _parts(state: FrozenState) -> Iterator[tuple[Any, Iterable[Entries], tuple[HeapTable, int] | None]]:
    """What its window is stored as, the content, and where it returns, of each shard.

    None: it need not return, or did.
    """
    for frozen in state.tables:
        for index, shard in frozen.shards:
            source = None if shard.is_copied_ahead else (frozen.table, index)
            yield None, shard.pieces(PIECE), source
    if state.by_window is not None:
        windows, stored = state.by_window.windows, state.by_window.stored
        for window, keys, values in windows.copies():
            yield stored(window), ((keys, values),), None
        for window, table, index, shard in windows.shards():
            yield stored(window), shard.pieces(PIECE), (table, index)


def _in_blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes with many small chunks joined."""
    block: list[bytes] = []
    size = 0
    for chunk in chunks:
        block.append(chunk)
        size += len(chunk)
        if size >= BLOCK:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


def state_form(state: StateRegistration, operator_name: str) -> StateForm:
    """The stored form of a state, for one snapshot, because serializers note what they wrote."""
    return StateForm(
        name=state.name,
        kind=state.kind,
        value=value_serializer(state.value_type, state.name, operator_name),
        map_key=value_serializer(state.map_key_type, state.name, operator_name)
        if state.kind is StateKind.MAP
        else None,
        ttl=state.ttl is not None,
    )


def _keeper(state: StateRegistration) -> Callable[[list[Any], Contents], Piece]:
    """Returns a function that removes expired content from a piece; none expires without time to live."""
    ttl, kind = state.ttl, state.kind
    if ttl is None:
        return lambda keys, contents: (keys, contents)
    deadline = ttl.deadline()

    def living(keys: list[Any], contents: Contents) -> Piece:
        maps = contents.maps() if isinstance(contents, ValuesByWindow) else contents
        left = [TimeToLive.living(kind, content, deadline) for content in maps]
        kept = [at for at, content in enumerate(left) if content is not MISSING]
        return [keys[at] for at in kept], [left[at] for at in kept]

    return living
