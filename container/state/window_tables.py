"""Tables by window: one value a key and window, each window with a table of its own, and their form on the heap.

Owner: the task thread; what a cut has frozen is read by the snapshot thread. Namespaces of keyed state are such
windows. A backend below says what a window's table is. These classes must not know what windows mean: when one has
ended is the operator's affair. See docs/design/0021-tables-by-window.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from yarrow.common.typeinfo import Types
from yarrow.container.state.frozen_shard import PIECE
from yarrow.container.state.frozen_windows import FrozenWindows, WindowContent
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.ttl import TimeToLive
from yarrow.container.state.value_table import ValueTable
from yarrow.datastream.window_types import TimeWindow
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.window_forms import WindowForm, last_time, place_start

W = TypeVar("W")
W_co = TypeVar("W_co", covariant=True)
T = TypeVar("T", bound=ValueTable)

#: Keys and values of a window, as many of the one as of the other.
Rows = tuple[Sequence[Any], Sequence[Any]]


class StoredAtCut(Protocol[W_co]):
    """Rows that an operator keeps in memory in its own form. Only a snapshot has them by window and key."""

    @property
    def entries(self) -> int:
        """The number of rows. Any thread."""
        ...

    def freeze(self) -> Iterator[WindowContent[W_co]]:
        """The present rows, a window at a time; later changes are not part of them.

        The call is short; iterating, once, makes the lists, which the snapshot thread does.
        """
        ...


_PLACE: Final = itemgetter(0)


def _bounds(window: TimeWindow) -> tuple[int, int]:
    return window.start, window.end


#: Windows of time: stored as (start, end), listed by their end.
TIME_WINDOWS: Final[WindowForm[TimeWindow]] = WindowForm(
    Types.TUPLE([Types.LONG(), Types.LONG()]), _bounds, lambda stored: TimeWindow(*stored), last_time
)


class WindowTables(ABC, Generic[W]):
    """The values of one state by window and key.

    Generated code works on the dicts of a window's table as `ValueTable` says. Once a call it asks `table` for the
    windows of its rows, since a backend may have put aside what was not asked for. Single keys of a window go by the
    table's `remove` and `take`. A window is listed from the first `table` until `drop`, also if all its keys were
    removed. One without rows is not stored, so a restore does not list it.
    """

    #: True if the backend keeps all state in memory, so that `store_also` takes rows.
    stores_at_cut: bool = False
    #: If not None, values are pairs (epoch ms of the last access, value). The backend removes expired ones in time.
    ttl: TimeToLive | None = None

    def store_also(self, rows: StoredAtCut[W]) -> None:
        """Stores rows that the operator keeps, at each cut, beside those of the tables: in other windows than these.

        Only where `stores_at_cut` is true.
        """
        raise NotImplementedError

    @abstractmethod
    def table(self, window: W) -> ValueTable:
        """The table of a window, made where there is none. It is the same object until the window is dropped.

        Raises InvalidProgramError for a window without a place, or with that of a window that is not equal to it.
        """

    @abstractmethod
    def windows(self) -> list[W]:
        """The windows, by their position (their end)."""

    @abstractmethod
    def windows_until(self, position: int) -> list[W]:
        """The windows whose position is `position` or lower, by their position."""

    @abstractmethod
    def rows(self, window: W) -> Iterator[Rows]:
        """Canonical keys and values of a window, some thousand at a time, in any order; nothing for one not listed.

        The window must not be written to meanwhile. Values that a snapshot holds are given as copies.
        """

    @abstractmethod
    def take(self, window: W) -> Iterator[Rows]:
        """Takes the rows out of a window, some thousand at a time, in any order; given rows are gone.

        Chunks, cuts and snapshots may come between two pieces. A row that is put in meanwhile may be given or not. The
        values belong to the caller. The window stays listed.
        """

    @abstractmethod
    def drop(self, window: W) -> None:
        """Removes a window with all its rows; one that is not listed is no error. Its table must not be used again."""


class ListedTables(WindowTables[W], Generic[W, T]):
    """What backends have in common: the tables at hand, and the list of windows in order."""

    def __init__(self, form: WindowForm[W]) -> None:
        self._form = form
        self._tables: dict[W, T] = {}
        #: (place, window) in order; places are different, so that windows are never compared.
        self._listed: list[tuple[bytes, W]] = []

    @abstractmethod
    def _open(self, window: W, place: bytes) -> T:
        """The table of a window that is not listed."""

    @abstractmethod
    def _close(self, window: W, table: T) -> None:
        """The window is listed no more."""

    def _table(self, window: W) -> T:
        table = self._tables.get(window)
        if table is None:
            place, listed = self._form.place(window), self._listed
            at = bisect_left(listed, place, key=_PLACE)
            if at < len(listed) and listed[at][0] == place:
                # Two tables would read and write the same rows, and a restore would keep those of one.
                raise InvalidProgramError(
                    f"the windows {listed[at][1]!r} and {window!r} are stored alike but are not equal. Define"
                    f" __eq__ and __hash__ in {type(window).__name__}, and store all fields in which its"
                    " windows differ"
                )
            table = self._open(window, place)
            self._tables[window] = table
            listed.insert(at, (place, window))
        return table

    def windows(self) -> list[W]:
        return [window for _, window in self._listed]

    def windows_until(self, position: int) -> list[W]:
        # Behind its position a place goes on with the version of encoded keys, which is less.
        behind = place_start(position) + b"\xff"
        end = bisect_right(self._listed, behind, key=_PLACE)
        return [window for _, window in self._listed[:end]]

    def drop(self, window: W) -> None:
        table = self._tables.pop(window, None)
        if table is not None:
            del self._listed[bisect_left(self._listed, self._form.place(window), key=_PLACE)]
            self._close(window, table)


class HeapWindowTables(ListedTables[W, HeapTable]):
    """A HeapTable a window."""

    stores_at_cut = True

    def __init__(self, form: WindowForm[W], like: HeapTable) -> None:
        """`like` is an empty table, as each window gets one."""
        super().__init__(form)
        self._like = like
        #: Tables asked for since the last chunk or cut, and those that are being divided.
        self._used: dict[W, HeapTable] = {}
        #: Windows that had too many rows to be copied in one piece.
        self._large: set[W] = set()
        #: Cuts whose snapshots are under way, the oldest first.
        self._cuts: list[FrozenWindows[W]] = []
        #: Dicts of dropped windows, which are emptied in steps: to let go of a million values at once takes long.
        self._emptied: list[dict[Any, Any]] = []
        self._beside: StoredAtCut[W] | None = None

    def store_also(self, rows: StoredAtCut[W]) -> None:
        self._beside = rows

    def table(self, window: W) -> HeapTable:
        table = self._used.get(window)
        if table is None:
            table = self._table(window)
            _touch(self._cuts, window, table)
            self._used[window] = table
        return table

    def cut(self, cut: int) -> FrozenWindows[W]:
        """The present windows: large ones, and those that a snapshot holds, are frozen now; others when touched."""
        beside = iter(()) if self._beside is None else self._beside.freeze()
        frozen: FrozenWindows[W] = FrozenWindows(cut, self._tables.copy(), self._forget_cut, beside)
        for window in self._large:
            _touch([frozen], window, None)
        for other in self._cuts:
            for window, table in other.windows_cut():
                if table.is_held and self._tables.get(window) is table:
                    _touch([frozen], window, None)
        self._cuts.append(frozen)
        self._used = {window: table for window, table in self._used.items() if table.dividing}
        return frozen

    @property
    def is_held(self) -> bool:
        """True while a snapshot holds windows."""
        return bool(self._cuts)

    def untouched(self, window: W) -> HeapTable | None:
        """The table of a window for looks alone: a snapshot may hold it. None = the window is not listed."""
        return self._tables.get(window)

    def _forget_cut(self, cut: FrozenWindows[W]) -> None:
        if cut in self._cuts:
            self._cuts.remove(cut)

    def stored(self, window: W) -> Any:
        """What a window is stored as. Any thread."""
        return self._form.stored(window)

    def drop(self, window: W) -> None:
        _touch(self._cuts, window, self._tables.get(window))
        super().drop(window)

    def _note_size(self, window: W, table: HeapTable) -> None:
        if not table.flat or len(table.live[0]) > PIECE:
            self._large.add(window)

    def restore(self, runs: Iterable[tuple[Sequence[Any], Sequence[Mapping[Any, Any]]]]) -> None:
        """Puts in canonical keys with their values by stored window; a key may come several times."""
        by_stored: dict[Any, HeapTable] = {}
        for keys, contents in runs:
            # Runs are small and windows may be many: only tables that have grown are looked at.
            grown: dict[Any, HeapTable] = {}
            for key, content in zip(keys, contents, strict=True):
                for stored, value in content.items():
                    table = grown.get(stored)
                    if table is None:
                        table = by_stored.get(stored)
                        if table is None:
                            table = by_stored[stored] = self._table(self._form.window(stored))
                        grown[stored] = table
                    table.shard_of(key)[key] = value
            for stored, table in grown.items():
                table.divide_if_large()
                self._note_size(self._form.window(stored), table)

    def rows(self, window: W) -> Iterator[Rows]:
        table = self._tables.get(window)
        if table is None:
            return iter(())
        # Whoever gets values that can change may change them: a snapshot has its own from then on.
        return (table if table.protect is None else self.table(window)).rows()

    def take(self, window: W) -> Iterator[Rows]:
        if window not in self._tables:
            return
        pieces = self.table(window).take_all()
        while True:
            # A cut since the last piece freezes the table now, before it changes.
            self.table(window)
            piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def tables(self) -> Iterator[tuple[Any, HeapTable]]:
        """(stored form of a window, its table), by position."""
        stored, tables = self._form.stored, self._tables
        return ((stored(window), tables[window]) for _, window in self._listed)

    def _open(self, window: W, place: bytes) -> HeapTable:
        return self._like.empty_copy()

    def _close(self, window: W, table: HeapTable) -> None:
        self._used.pop(window, None)
        self._large.discard(window)
        if table.entries > PIECE and not table.is_held:
            self._emptied += table.take_dicts()

    @property
    def entries(self) -> int:
        """Rows of all windows. Any thread: a report of metrics asks while windows come and go."""
        beside = 0 if self._beside is None else self._beside.entries
        return beside + sum(table.entries for table in list(self._tables.values()))

    def end_of_chunk(self) -> None:
        """A bounded piece of work for each window in use, and for those dropped."""
        for window, table in self._used.items():
            table.end_of_chunk()
            self._note_size(window, table)
        self._used = {window: table for window, table in self._used.items() if table.dividing}
        left = PIECE
        while self._emptied and left > 0:
            entries = self._emptied[-1]
            for _ in range(min(left, len(entries))):
                entries.popitem()
                left -= 1
            if not entries:
                self._emptied.pop()


def _touch(cuts: Sequence[FrozenWindows[W]], window: W, table: HeapTable | None) -> None:
    """Freezes a window for all cuts that still need it, before it changes or goes.

    It is taken from all of them first: a cut replaces the content that the snapshot thread of another one would read.
    """
    for cut in cuts:
        cut.begin_touch()
    try:
        taken = [(cut, found) for cut in cuts if (found := cut.take(window, table)) is not None]
        for cut, found in taken:
            cut.freeze(window, found)
    finally:
        for cut in cuts:
            cut.end_touch()
