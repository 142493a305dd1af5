"""HeapTable: the content of one state by key, in plain dicts, with a cut whose cost does not depend on keys.

Owner: the task thread; the snapshot thread may read frozen content until it is released. A small table is one
dict, a large one many shards. So no growth, cut or merge of a single dict stops the task for long. The entries
of the first dict move to the shards a few at a time; each key is in one place only. A cut puts the present dict
of each shard below an empty one. The lower dict is then immutable, and reads that miss look through the lower
layers. Writes go to the new dict. Keys removed since the cut stand apart, in a layer between. When the snapshot
releases a shard, its layers become one dict again. See docs/design/0010-heap-state.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any, Final

from yarrow.container.state.frozen_shard import PIECE, REMOVED, FrozenShard, Layers, pieces_of
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.data.keys import canonicalize

#: Entries of the first dict above which new keys go to shards, for content that may change in place. A
#: snapshot holds such a dict until it is written, and merging the later changes must not take long.
FLAT_LIMIT: Final = 170_000
#: The same limit for content that cannot change, whose dict a snapshot holds only while it is copied. It is
#: well below the 1 398 101 entries at which the dict would be rehashed. It is small enough for a copy within
#: 100 ms.
LARGE_FLAT_LIMIT: Final = 1_100_000
#: The same where a sweep lists the keys of one dict after the other: as many as a shard has with 7 million keys.
SWEPT_FLAT_LIMIT: Final = 10_000
#: Length of `live` once the table is divided. It is prime, so that keys with a common factor (multiples of
#: 1000, aligned times) spread over all of it.
SLOTS: Final = 8191
#: Neighbouring slots that share a dict, in turn. Because they differ, evenly filled dicts (consecutive
#: numbers) are rehashed an eighth at a time and not all at once.
WEIGHTS: Final = (8, 9, 10, 11, 12, 13, 14, 15)

#: The index of the first dict, also once the table is divided.
FIRST: Final = 0
#: Keys changed since a cut after which the task thread stops waiting for the snapshot thread's copy of a
#: large dict.
PATIENCE: Final = 100_000


class HeapTable(ValueTable):
    """Content by canonical key.

    A program may change a value that it gets and write it back. So `protect` copies a returned value that a
    snapshot still holds; it is None if the declared type proves that values cannot change. If a key's content
    is a list or a map, `protect` copies one of its values, and `peek` gives access to the content.

    `is_immutable` says that content never changes in place: it is a value, no list or map, and `protect` is
    None.

    While `dividing`, a key that no shard has may still be in the first dict: only `peek` and `miss` know
    where.
    """

    def __init__(
        self,
        protect: Callable[[Any], Any] | None,
        is_immutable: bool,
        flat_limit: int | None = None,
        slots: int = SLOTS,
        weights: tuple[int, ...] = WEIGHTS,
    ) -> None:
        super().__init__()
        self.protect = protect
        self._is_immutable = is_immutable
        if flat_limit is None:
            flat_limit = LARGE_FLAT_LIMIT if is_immutable else FLAT_LIMIT
        self._flat_limit = flat_limit
        self._slots = slots
        self._weights = weights
        #: Entries of a first dict above which the task thread leaves its copy to the snapshot thread, and changed
        #: keys for which it waits.
        self._large = FLAT_LIMIT
        self._patience = PATIENCE
        #: Entries of the first dict that move to the shards after each chunk.
        self._moved_at_once = PIECE
        #: Per shard: the slots of `live` with its dict. Per slot: its shard.
        self._slots_of: list[slice] = [slice(0, 1)]
        self._shard_at: list[int] = [0]
        #: Per shard: immutable dicts, newest first, with the cut that froze each.
        self._below: list[Layers] = [()]
        self._cuts: list[tuple[int, ...]] = [()]
        #: True while there is one dict.
        self.flat = True
        #: True from then on until the first dict, which is not in `live` any more, is empty.
        self.dividing = False
        self._first: dict[Any, Any] = {}
        #: Per shard: its FrozenShard of the last cut, while entries may still be copied instead of being
        #: held.
        self._frozen: dict[int, FrozenShard] = {}
        #: The FrozenShard of a large first dict, which is left to the snapshot thread for a while.
        self._waited_for: FrozenShard | None = None
        #: Number of shards that cuts hold.
        self._held = 0
        #: Per shard: marks of the keys removed since its last cut that a lower layer holds. They stand apart because
        #: generated code finds only values in `live`; the next cut puts them into the dict that it freezes.
        self._gone: dict[int, dict[Any, Any]] = {}
        #: Whether there is a mark.
        self._marked = False

    # ------------------------------------------------------------------ access

    def shard_of(self, key: Any) -> dict[Any, Any]:
        """The dict for a raw key. Raises TypeError if the key cannot be hashed."""
        return self.live[0] if self.flat else self.live[hash(key) % self._slots]

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """See ValueTable. Mutable content of a lower layer is returned as a copy."""
        kind = type(key)
        if self.flat and not self._held and (kind is int or kind is str):
            shard = self.live[0]
            return key, shard, shard.get(key, MISSING)
        if self._held and not self.dividing and (kind is int or kind is str):
            # Canonical already. `peek` is inlined, because each key comes here once between a cut and its
            # release.
            slot = 0 if self.flat else hash(key) % self._slots
            shard = self.live[slot]
            value = shard.get(key, MISSING)
            if value is MISSING:
                index = self._shard_at[slot]
                if not shard and index in self._frozen and self._take_back(index):
                    shard = self.live[slot]
                    return key, shard, shard.get(key, MISSING)
                for layer in self._layers(index) if self._gone else self._below[index]:
                    value = layer.get(key, MISSING)
                    if value is not MISSING:
                        if value is not REMOVED and self.protect is not None:
                            return key, shard, self.protect(value)
                        break
            return key, shard, MISSING if value is REMOVED else value
        key, shard, value = self.peek(key)
        if value is not MISSING and self.protect is not None and key not in shard:
            value = self.protect(value)
        return key, shard, value

    def peek(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """Like `miss` without the copy: content that is not in the returned dict must not be changed."""
        key = canonicalize(key)
        slot = 0 if self.flat else hash(key) % self._slots
        shard = self.live[slot]
        value = shard.get(key, MISSING)
        if value is MISSING and self._held:
            for layer in self._layers(self._shard_at[slot]):
                value = layer.get(key, MISSING)
                if value is not MISSING:
                    break
        if value is MISSING and self.dividing:
            return self._peek_in_first(key, shard)
        return key, shard, MISSING if value is REMOVED else value

    def copy_by(self, copier: Callable[[Any], Any]) -> None:
        if self.protect is not None:
            self.protect = copier

    def read(self, key: Any) -> Any:
        return self.peek(key)[2]

    @property
    def whole(self) -> dict[Any, Any] | None:
        return self.live[0] if self.flat and not self._held else None

    def put_all(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        if self.flat:
            # What lies below of a key is hidden by what lies above.
            self.live[0].update(zip(keys, values, strict=True))
        elif self.dividing:
            for key, value in zip(keys, values, strict=True):
                self.peek(key)[1][key] = value
        else:
            live, slots = self.live, self._slots
            for key, value in zip(keys, values, strict=True):
                live[hash(key) % slots][key] = value

    def _peek_in_first(self, key: Any, shard: dict[Any, Any]) -> tuple[Any, dict[Any, Any], Any]:
        """Looks up a key that its shard does not have: see `peek`.

        Content that no snapshot holds moves to the shard.
        """
        first = self._first
        value = first.pop(key, MISSING)
        if value is MISSING:
            for layer in self._layers(FIRST):
                value = layer.get(key, MISSING)
                if value is not MISSING:
                    break
            # Held content stays with the first dict, and a write goes above it.
            return (key, shard, MISSING) if value is MISSING or value is REMOVED else (key, first, value)
        self._mark_gone(FIRST, key)
        shard[key] = value
        return key, shard, value

    def _take_back(self, index: int) -> bool:
        """Takes an untouched shard back from the only cut that holds it: its entries are copied for the snapshot.

        A key's search through the layers costs as much as copying some thirty entries, and most shards see
        more keys than that. Only for content that never changes in place.
        """
        if not self._frozen.pop(index).copy_unless_read():
            return False
        self._set_live(index, self._below[index][0])
        self._below[index] = ()
        self._cuts[index] = ()
        self._held -= 1
        return True

    def _take_back_if_late(self) -> None:
        """Copies a large first dict if the snapshot thread has not begun to, before merging takes long."""
        shard = self._waited_for
        if shard is not None and len(self._live_of(FIRST)) > self._patience:
            self._waited_for = None
            if shard.copy_unless_read():
                self.release(self._cuts[FIRST][0], FIRST)

    def remove(self, key: Any) -> None:
        key = canonicalize(key)
        slot = 0 if self.flat else hash(key) % self._slots
        shard, index = self.live[slot], self._shard_at[slot]
        if self.dividing:
            _, shard, _ = self.peek(key)
            if shard is self._first:
                index = FIRST
        if not shard and index in self._frozen and self._take_back(index):
            shard = self._live_of(index)
        shard.pop(key, None)
        self._mark_gone(index, key)

    def _mark_gone(self, index: int, key: Any) -> None:
        """Hides what lower layers of a shard hold of a key."""
        if self._held and any(key in layer for layer in self._below[index]):
            # Taken back, the frozen dict would show the key again.
            self._frozen.pop(index, None)
            self._gone.setdefault(index, {})[key] = REMOVED
            self._marked = True

    def _layers(self, index: int) -> Layers:
        """What lies below the dict of a shard, the newest first."""
        gone = self._gone.get(index)
        return self._below[index] if gone is None else (gone, *self._below[index])

    @property
    def entries(self) -> int:
        """Number of keys with content; during a snapshot, changed ones may count twice."""
        if self.flat and not self._held:
            return len(self.live[0])
        live = sum(len(self._live_of(index)) for index in range(self.shard_count))
        return live + sum(len(layer) for layers in self._below for layer in layers)

    def entries_below(self, index: int) -> int:
        """About how many entries a release may have to merge. Any thread."""
        return sum(map(len, self._below[index]))

    @property
    def shard_count(self) -> int:
        """Number of dicts without layers; the first one counts even if it is empty."""
        return len(self._below)

    def _live_of(self, index: int) -> dict[Any, Any]:
        if index == FIRST and not self.flat:
            return self._first
        entries: dict[Any, Any] = self.live[self._slots_of[index].start]
        return entries

    def _set_live(self, index: int, entries: dict[Any, Any]) -> None:
        if index == FIRST and not self.flat:
            self._first = entries
            return
        slots = self._slots_of[index]
        self.live[slots] = [entries] * (slots.stop - slots.start)

    def keys(self) -> list[Any]:
        """The canonical keys with content."""
        return [key for index in range(self.shard_count) for key in self.keys_of_shard(index)]

    def keys_of_shard(self, index: int) -> list[Any]:
        """The keys of one shard; none for an index that does not exist."""
        if index >= self.shard_count:
            return []
        layers = (self._live_of(index), *self._layers(index))
        return [key for keys, _ in pieces_of(layers, PIECE) for key in keys]

    def rows(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Canonical keys and values, a piece at a time; nothing may be written meanwhile.

        Values that a snapshot holds are given as copies, where they could be changed.
        """
        protect = self.protect if self._held else None
        for index in range(self.shard_count):
            for keys, values in pieces_of((self._live_of(index), *self._layers(index)), PIECE):
                yield keys, values if protect is None else list(map(protect, values))

    def take_all(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Takes all rows out, a piece at a time: given rows are gone. Cuts and releases may come between two pieces.

        The values belong to the caller: those that a snapshot holds are given as copies, where they could be changed.
        """
        index = 0
        while index < self.shard_count:
            below = self._below[index]
            if index in self._frozen and self._take_back(index):
                continue
            # The snapshot thread has the shard, and the dict must not show its keys again.
            self._frozen.pop(index, None)
            if index == FIRST:
                self._waited_for = None
            entries = self._live_of(index)
            if entries:
                if len(entries) <= PIECE:
                    keys, values = list(entries), list(entries.values())
                    entries.clear()
                else:
                    piece = [entries.popitem() for _ in range(PIECE)]
                    keys, values = [key for key, _ in piece], [value for _, value in piece]
                for key in keys if below else ():
                    self._mark_gone(index, key)
                yield keys, values
                continue
            yield from self._take_below(index, below)
            if self._below[index] is below and not self._live_of(index):
                index += 1

    def _take_below(self, index: int, below: Layers) -> Iterator[tuple[list[Any], list[Any]]]:
        """Takes out what cuts hold of a shard, until the layers change: marks hide the keys."""
        protect = self.protect
        for keys, values in pieces_of(below, PIECE):
            gone, newer = self._gone.get(index, {}), self._live_of(index)
            left = [
                at
                for at, key in enumerate(keys)
                if key not in gone and key not in newer and values[at] is not REMOVED
            ]
            if left:
                taken = [keys[at] for at in left]
                self._gone.setdefault(index, {}).update(dict.fromkeys(taken, REMOVED))
                self._marked = True
                yield taken, [values[at] if protect is None else protect(values[at]) for at in left]
            if self._below[index] is not below:
                return

    def empty_copy(self) -> HeapTable:
        """A table of the same kind without content."""
        return HeapTable(self.protect, self._is_immutable, self._flat_limit, self._slots, self._weights)

    def take_dicts(self) -> list[dict[Any, Any]]:
        """The dicts of a table that no snapshot holds and that nobody uses any more."""
        return [self._live_of(index) for index in range(self.shard_count)]

    # ------------------------------------------------------------------ growth

    def end_of_chunk(self) -> None:
        """Does a bounded piece of due work between two calls of generated code."""
        self._take_back_if_late()
        self.divide_if_large()

    def divide_if_large(self) -> None:
        """Opens shards once the single dict is large, then moves some of its entries at each call."""
        if self.flat and len(self.live[0]) + sum(map(len, self._below[FIRST])) > self._flat_limit:
            self._divide()
        # The dict that a snapshot holds is about to become the first dict again.
        if self.dividing and not self._below[FIRST]:
            self._move()

    def _divide(self) -> None:
        runs = list(_neighbours(self._slots, self._weights))
        self._first = self.live[0]
        self._slots_of = [slice(0, 0), *runs]
        self._shard_at = [
            index for index, slots in enumerate(runs, FIRST + 1) for _ in range(slots.start, slots.stop)
        ]
        shards: list[dict[Any, Any]] = [{} for _ in self._slots_of]
        self.live[:] = [shards[index] for index in self._shard_at]
        self._below += [()] * len(runs)
        self._cuts += [()] * len(runs)
        self.flat = False
        self.dividing = True

    def _move(self) -> None:
        first, live, slots = self._first, self.live, self._slots
        for _ in range(min(self._moved_at_once, len(first))):
            key, value = first.popitem()
            live[hash(key) % slots][key] = value
        if not first:
            # A dict keeps the memory of removed entries.
            self._first = {}
            self.dividing = False

    # ------------------------------------------------------------------ snapshots

    @property
    def is_held(self) -> bool:
        """True while a snapshot holds content: read values must not be changed without `protect`."""
        return self._held > 0

    def cut(self, cut: int) -> list[tuple[int, FrozenShard]]:
        """Freezes the present content; returns (index for `release`, content) of each non-empty shard.

        The numbers of cuts rise.
        """
        frozen = []
        below = self._below
        self._frozen.clear()
        self._waited_for = None
        for index, layers in enumerate(below):
            entries = self._live_of(index)
            for key in self._gone.pop(index, ()):
                entries.setdefault(key, REMOVED)
            if entries or layers:
                below[index] = layers = (entries, *layers)
                self._cuts[index] = (cut, *self._cuts[index])
                self._set_live(index, {})
                is_copied_ahead = index == FIRST and self._is_immutable
                is_large = is_copied_ahead and sum(map(len, layers)) > self._large
                shard = FrozenShard(layers, is_copied_ahead)
                frozen.append((index, shard))
                if self._is_immutable and not self._marked and len(layers) == 1:
                    if is_large:
                        self._waited_for = shard
                    else:
                        self._frozen[index] = shard
        self._held += len(frozen)
        return frozen

    def release(self, cut: int, index: int) -> None:
        """Releases a shard that the snapshot of that cut does not need any more; no effect when repeated."""
        self._release(cut, index)
        if not self._held:
            self._marked = False

    def _release(self, cut: int, index: int) -> None:
        cuts = self._cuts[index]
        if cut not in cuts:
            return
        self._frozen.pop(index, None)
        if index == FIRST:
            self._waited_for = None
        at = cuts.index(cut)
        layers = self._below[index]
        is_lowest = at == len(layers) - 1
        if at == 0:
            # Only this cut saw the topmost layer: later changes are merged into it in place.
            self._set_live(index, self._thawed(index, layers[0], is_lowest))
            layers = layers[1:]
        else:
            # A newer cut sees this layer too, and must see it unchanged.
            merged = self._merged(layers[at].copy(), layers[at - 1], is_lowest)
            layers = (*layers[: at - 1], merged, *layers[at + 1 :])
        self._below[index] = layers
        self._cuts[index] = cuts[:at] + cuts[at + 1 :]
        self._held -= 1

    def _thawed(self, index: int, lower: dict[Any, Any], is_lowest: bool) -> dict[Any, Any]:
        """The topmost layer of a shard with all later changes, as the dict of the shard again."""
        live, gone = self._live_of(index), self._gone.pop(index, {})
        for key in gone:
            lower.pop(key, None)
        if self._marked and not is_lowest:
            # The marks of the cut stand apart again. The lowest layer has none.
            marks = [key for key, value in lower.items() if value is REMOVED]
            for key in marks:
                gone[key] = lower.pop(key)
        lower.update(live)
        if gone and not is_lowest:
            self._gone[index] = gone
        return lower

    def _merged(self, lower: dict[Any, Any], upper: dict[Any, Any], is_lowest: bool) -> dict[Any, Any]:
        """`lower` with `upper` written over it; marks are dropped if nothing lies below."""
        if not (is_lowest and self._marked):
            lower.update(upper)
            return lower
        for key, value in upper.items():
            if value is REMOVED:
                lower.pop(key, None)
            else:
                lower[key] = value
        return lower


def _neighbours(slots: int, weights: tuple[int, ...]) -> Iterator[slice]:
    """Runs of neighbouring slots, with lengths by the weights in turn."""
    start = 0
    for weight in cycle(weights):
        yield slice(start, min(start + weight, slots))
        start += weight
        if start >= slots:
            return
