"""KeyBlocks: keys that fire in columns, a few hundred at once, where a backend on the heap stores them.

Owner: the task thread; the snapshot thread reads what `freeze` has given. The keys of a block have one border. Its
fronts are columns, made when the block turns, so a slice that leaves costs no step for each key. No value changes in
place. Must not know watermarks or results. See docs/design/0041-windows-of-slices.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import Any, Final
from uuid import UUID

from yarrow.container.operators.sliced_window.slice_stacks import Fired, FrontColumn, SliceStacks, Stacks
from yarrow.container.state.frozen_windows import WindowContent
from yarrow.container.state.window_tables import WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.keys import canonicalize

#: Most keys of a block, which fire between two looks at the clock.
_MOST_KEYS: Final = 512
#: Most values that keys of a block look up when they turn, in one piece of work: keys times the slices of a window. At
#: least _LEAST_KEYS turn together all the same.
_LOOKUPS_A_TURN: Final = 150_000
#: Least keys of a block that turns. With fewer, work for the block as a whole costs more than the columns save.
_LEAST_KEYS: Final = 16
#: Most places of the columns of fronts for each value of a slice. A column takes 8 bytes for a key, and a value in a
#: slice some hundred.
_PLACES_A_VALUE: Final = 16


#: Stands in the place of a key that has left its block. No slice has this canonical key.
_GONE: Final[Any] = canonicalize(UUID("8b27b529-3b20-42b5-b64e-a1955fa6ecc7"))


class KeyBlock:
    """Canonical keys that stand at one window, and their stacks, as columns.

    A snapshot may hold `keys` and `backs`. So these lists never change in place.
    """

    __slots__ = ("backs", "border", "fronts", "keys", "window")

    def __init__(self, window: TimeWindow, keys: list[Any], border: int, backs: list[Any]) -> None:
        self.window = window
        #: _GONE in the place of a key that has left.
        self.keys = keys
        #: See Stacks.
        self.border, self.backs = border, backs
        #: The last one is that of the window.
        self.fronts: list[FrontColumn] = []

    def stacks(self) -> list[Stacks]:
        """The stacks of each key, as they are stored."""
        return list(zip(repeat(self.window.start), repeat(self.border), self.backs, strict=False))

    def extend(self, keys: list[Any], backs: list[Any]) -> None:
        """Adds keys without a front that stand at the same window, and have no content before the border."""
        self.keys, self.backs = self.keys + keys, self.backs + backs
        nothing = [None] * len(keys)
        for _, values in self.fronts:
            values += nothing

    def can_take(self, other: KeyBlock) -> bool:
        """True if the keys of another block have the border of this one, and columns of the same slices."""
        starts = [[start for start, _ in block.fronts] for block in (self, other)]
        return self.border == other.border and starts[0] == starts[1]

    def take(self, other: KeyBlock) -> None:
        """Adds the keys of another block, where `can_take` is true and both stand at the same window."""
        self.keys, self.backs = self.keys + other.keys, self.backs + other.backs
        for (_, values), (_, others) in zip(self.fronts, other.fronts, strict=True):
            values += others

    def clear(self, places: Sequence[int]) -> None:
        """The keys at these places leave."""
        self.keys, self.backs = self.keys.copy(), self.backs.copy()
        columns = [self.keys, self.backs, *(values for _, values in self.fronts)]
        for column, mark in zip(columns, [_GONE, *[None] * (len(columns) - 1)], strict=True):
            for at in places:
                column[at] = mark


class KeyBlocks:
    """The blocks of one operator: they stand at the window that fires, or at the one that follows it."""

    def __init__(self, tables: WindowTables[TimeWindow], stacks: SliceStacks, slices: int) -> None:
        """`tables` are those of stacks by window, whose backend stores rows of others at a cut.

        `slices`: how many slices a window has.
        """
        self._stacks = stacks
        #: Keys that turn in one piece of work.
        self._turn_at_once = max(_LEAST_KEYS, _LOOKUPS_A_TURN // slices)
        #: The block of each key.
        self._by_key: dict[Any, KeyBlock] = {}
        #: The blocks by the end of the window where they stand.
        self._standing: dict[int, deque[KeyBlock]] = {}
        tables.store_also(self)

    def others(self, keys: Iterable[Any]) -> list[Any]:
        """Chooses the keys, of some canonical ones, that no block has."""
        by_key = self._by_key
        return [key for key in keys if key not in by_key]

    def without_own(
        self, keys: Sequence[Any], stacks: Sequence[Stacks]
    ) -> tuple[Sequence[Any], Sequence[Stacks]]:
        """Chooses the keys, of some canonical ones, that no block has; with their stacks."""
        if self._by_key.keys().isdisjoint(keys):
            return keys, stacks
        others = [key not in self._by_key for key in keys]
        return list(compress(keys, others)), list(compress(stacks, others))

    # ------------------------------------------------------------------ windows that end

    def next_of(self, window: TimeWindow) -> KeyBlock | None:
        """Takes a block that stands at a window, which the caller fires at once; None = none is left."""
        blocks = self._standing.get(window.end)
        if not blocks:
            return None
        block = blocks.popleft()
        if block.border < window.start and len(block.keys) > self._turn_at_once:
            block, rest = self._split(block)
            blocks.appendleft(rest)
        if not blocks:
            del self._standing[window.end]
        return block

    def stand_at(self, window: TimeWindow) -> bool:
        """True if a block stands at a window."""
        return window.end in self._standing

    def fire(self, block: KeyBlock, following: TimeWindow) -> Fired:
        """What its window is for the keys of a taken block, which then stands at the following one.

        The stacks have begun the window of the block. Keys that no block is worth leave, with their stacks. If a
        function raises an error, `SliceStacks.failed` is its key.
        """
        if block.border < block.window.start:
            return self._turn(block, following)
        firsts = block.fronts[-1].values if block.fronts else None
        backs, values = self._stacks.fire_columns(block, firsts)
        keys, block.backs = block.keys, backs
        if None in values:
            found = [value is not None for value in values]
            gone = [
                at for at, back in enumerate(backs) if back is None and (not firsts or firsts[at] is None)
            ]
            keys, values = list(compress(keys, found)), list(compress(values, found))
            self._forget(block, [at for at in gone if block.keys[at] is not _GONE])
        fronts = block.fronts
        while fronts and fronts[-1].start < following.start:
            fronts.pop()
        if keys or any(key is not _GONE for key in block.keys):
            self._move(block, following)
        return Fired(keys, values, [], [])

    def add(
        self, window: TimeWindow, keys: Sequence[Any], stacks: Sequence[Stacks]
    ) -> tuple[list[Any], list[Stacks]]:
        """Adds keys that stand at a window, where they have no front; returns the others, and their stacks."""
        start = window.start
        ready = [front >= border or border <= start for front, border, _ in stacks]
        added, own = list(compress(keys, ready)), list(compress(stacks, ready))
        if added:
            self._add_without_front(window, added, own)
        if len(added) == len(keys):
            return [], []
        others = [not each for each in ready]
        return list(compress(keys, others)), list(compress(stacks, others))

    def _turn(self, block: KeyBlock, following: TimeWindow) -> Fired:
        """Fires a block whose front has left: the slices of its window become the front."""
        window = block.window
        keys = [key for key in block.keys if key is not _GONE]
        fronts, found = self._stacks.turned_columns(keys)
        values = fronts[-1].values if fronts else [None] * len(keys)
        if None in values:
            alive = [value is not None for value in values]
            for key in compress(keys, [not each for each in alive]):
                del self._by_key[key]
            keys = list(compress(keys, alive))
            fronts = [FrontColumn(start, list(compress(values, alive))) for start, values in fronts]
            values = fronts[-1].values if fronts else []
        if len(keys) < _LEAST_KEYS or len(keys) * len(fronts) > found * _PLACES_A_VALUE:
            for key in keys:
                del self._by_key[key]
            stack = window.start, window.end, None
            return Fired(keys, values, keys, [stack] * len(keys))
        if fronts[-1].start < following.start:
            fronts.pop()
        block.keys, block.backs, block.border, block.fronts = keys, [None] * len(keys), window.end, fronts
        self._join(block, following)
        return Fired(keys, values, [], [])

    def _split(self, block: KeyBlock) -> tuple[KeyBlock, KeyBlock]:
        """Divides a block whose front has left, so that no more keys than allowed turn at once.

        All parts have about the same size, so that none has too few keys for a block.
        """
        number = len(block.keys)
        parts = -(-number // self._turn_at_once)
        at = -(-number // parts)
        first = KeyBlock(block.window, block.keys[:at], block.border, block.backs[:at])
        block.keys, block.backs = block.keys[at:], block.backs[at:]
        self._by_key.update((key, first) for key in first.keys if key is not _GONE)
        return first, block

    def _join(self, block: KeyBlock, window: TimeWindow) -> None:
        """Moves a block that has turned to a window, into one that has turned before it if that has room."""
        blocks = self._standing.get(window.end)
        last = blocks[-1] if blocks else None
        if last is None or len(last.keys) + len(block.keys) > _MOST_KEYS or not last.can_take(block):
            self._move(block, window)
            return
        last.take(block)
        self._by_key.update(dict.fromkeys(block.keys, last))

    def _add_without_front(self, window: TimeWindow, keys: list[Any], stacks: list[Stacks]) -> None:
        border = min(border for _, border, _ in stacks)
        backs = [back for _, _, back in stacks]
        blocks = self._standing.setdefault(window.end, deque())
        last = blocks[-1] if blocks else None
        # A key has no content before its border. So a border before it says the same.
        if last is None or len(last.keys) + len(keys) > _MOST_KEYS or last.border > border:
            last = KeyBlock(window, keys, border, backs)
            blocks.append(last)
        else:
            last.extend(keys, backs)
        self._by_key.update(dict.fromkeys(keys, last))

    def _move(self, block: KeyBlock, window: TimeWindow) -> None:
        block.window = window
        self._standing.setdefault(window.end, deque()).append(block)

    def _forget(self, block: KeyBlock, places: Sequence[int]) -> None:
        """The keys at these places have no content any more."""
        if places:
            for at in places:
                del self._by_key[block.keys[at]]
            block.clear(places)

    # ------------------------------------------------------------------ single keys

    def stacks_of(self, key: Any) -> tuple[TimeWindow, Stacks] | None:
        """The window where a canonical key stands, and its stacks; None = no block has it."""
        block = self._by_key.get(key)
        if block is None:
            return None
        return block.window, (block.window.start, block.border, block.backs[block.keys.index(key)])

    def remove(self, key: Any) -> None:
        """Removes a canonical key; no effect if no block has it."""
        block = self._by_key.get(key)
        if block is not None:
            self._forget(block, [block.keys.index(key)])

    # ------------------------------------------------------------------ stored

    @property
    def entries(self) -> int:
        """See StoredAtCut."""
        return len(self._by_key)

    def freeze(self) -> Iterator[WindowContent[TimeWindow]]:
        """See StoredAtCut."""
        blocks = [block for blocks in self._standing.values() for block in blocks]
        return _stored([(block.window, block.border, block.keys, block.backs) for block in blocks])


def _stored(
    frozen: list[tuple[TimeWindow, int, list[Any], list[Any]]],
) -> Iterator[WindowContent[TimeWindow]]:
    """Frozen blocks as rows of their windows. Snapshot thread."""
    for window, border, keys, backs in frozen:
        rows = [(key, back) for key, back in zip(keys, backs, strict=True) if key is not _GONE]
        yield window, [key for key, _ in rows], [(window.start, border, back) for _, back in rows]
