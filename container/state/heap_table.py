"""HeapTable: the content of one state by key, in plain dicts, with a cut that costs nothing a key.

Owner: the task thread; what a cut has frozen may be read by the snapshot thread until it is released. A table is one
dict while it is small and many shards once it is large, so that no growth, cut or merge of a single dict stops the
task for long. A cut puts the present dict of each shard below an empty one: from then on it is immutable, reads that
miss look through the layers below, writes go to the new dict, removed keys are marked. When the snapshot lets go of a
shard, its layers become one dict again. See docs/design/0010-heap-state.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any, Final

from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.data.keys import canonicalize

#: Marks a key that was removed while a dict below still holds it.
REMOVED: Final[Any] = object()
#: Entries of a single dict above which it is divided: just below the size at which it would be rehashed, and small
#: enough to be divided within a few slices' time.
FLAT_LIMIT: Final = 170_000
#: Length of `live` once the table is divided. A prime, so that keys with a common factor (multiples of 1000, aligned
#: times) spread over all of it.
SLOTS: Final = 8191
#: Neighbouring slots that share a dict, in turn. As they differ, dicts filled evenly (consecutive numbers) are rehashed
#: one eighth at a time and not all at once.
WEIGHTS: Final = (8, 9, 10, 11, 12, 13, 14, 15)

#: The index of a single dict: it stands for all shards when the table is divided later.
WHOLE: Final = -1
#: Entries that are handled in one go where others wait for the interpreter.
PIECE: Final = 4_000

#: The dicts of one shard, the newest first.
Layers = tuple[dict[Any, Any], ...]
#: How long the snapshot thread waits for a copy that the task thread is making.
_COPYING_SECONDS: Final = 0.0005


class FrozenShard:
    """One shard as it was at a cut, for the snapshot thread.

    Whoever comes first has it: the snapshot thread, for which the dicts stay as they are until the release, or the task
    thread, which copies their entries in two calls and goes on with the dict itself.
    """

    __slots__ = ("_copied", "_free", "_is_read", "layers")

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        #: One entry until somebody takes it: `pop` of a list is atomic.
        self._free = [True]
        self._is_read = False
        self._copied: tuple[list[Any], list[Any]] | None = None

    def pieces(self, size: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Keys and contents, `size` at a time at most. Snapshot thread."""
        if not self._is_read:
            self._is_read = self._take()
        if self._is_read:
            yield from pieces_of(self.layers, size)
            return
        while self._copied is None:
            time.sleep(_COPYING_SECONDS)
        keys, contents = self._copied
        for start in range(0, len(keys), size):
            yield keys[start : start + size], contents[start : start + size]

    def copy_unless_read(self) -> bool:
        """Whether the single dict is free for changes now. Task thread."""
        if not self._take():
            return False
        (entries,) = self.layers
        keys, contents = list(entries), list(entries.values())
        self.layers = ()
        self._copied = keys, contents
        return True

    def _take(self) -> bool:
        try:
            return self._free.pop()
        except IndexError:
            return False


class HeapTable(ValueTable):
    """Content by canonical key.

    `protect` copies a value that a snapshot still holds before it is handed out, since a program may change what it
    gets and write it back; None where the declared type proves that it cannot change. Where a key's content is a list
    or a map, it copies one of its values, and `find` is the way to the content.
    """

    def __init__(
        self,
        protect: Callable[[Any], Any] | None,
        flat_limit: int = FLAT_LIMIT,
        slots: int = SLOTS,
        weights: tuple[int, ...] = WEIGHTS,
    ) -> None:
        super().__init__()
        self.protect = protect
        self._flat_limit = flat_limit
        self._slots = slots
        self._weights = weights
        #: Per shard: the slots of `live` that show its dict. Per slot: its shard.
        self._slots_of: list[slice] = [slice(0, 1)]
        self._shard_at: list[int] = [0]
        #: Per shard: immutable dicts, the newest first, and the cut that froze each.
        self._below: list[Layers] = [()]
        self._cuts: list[tuple[int, ...]] = [()]
        #: True while there is one dict.
        self.flat = True
        #: Per shard: what the last cut made of it, while its entries may still be copied instead of being held.
        self._frozen: dict[int, FrozenShard] = {}
        #: Shards that cuts hold.
        self._held = 0
        #: Whether a mark may stand in a dict.
        self._marked = False

    # ------------------------------------------------------------------ access

    def shard_of(self, key: Any) -> dict[Any, Any]:
        """The dict that a raw key belongs to; TypeError where it cannot be hashed."""
        return self.live[0] if self.flat else self.live[hash(key) % self._slots]

    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """See ValueTable. Content of a layer below is given as a copy where it could be changed."""
        kind = type(key)
        if self._held and (kind is int or kind is str):
            # Canonical already: `find` written out, since each key comes here once between a cut and its release.
            slot = 0 if self.flat else hash(key) % self._slots
            shard = self.live[slot]
            value = shard.get(key, MISSING)
            if value is MISSING:
                index = self._shard_at[slot]
                if not shard and index in self._frozen and self._take_back(index):
                    shard = self.live[slot]
                    return key, shard, shard.get(key, MISSING)
                for layer in self._below[index]:
                    value = layer.get(key, MISSING)
                    if value is not MISSING:
                        if value is not REMOVED and self.protect is not None:
                            return key, shard, self.protect(value)
                        break
            return key, shard, MISSING if value is REMOVED else value
        key, shard, value = self.find(key)
        if value is not MISSING and self.protect is not None and key not in shard:
            value = self.protect(value)
        return key, shard, value

    def find(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """The same without the copy: content that is not in the dict given must not be changed."""
        key = canonicalize(key)
        slot = 0 if self.flat else hash(key) % self._slots
        shard = self.live[slot]
        value = shard.get(key, MISSING)
        if value is MISSING and self._held:
            for layer in self._below[self._shard_at[slot]]:
                value = layer.get(key, MISSING)
                if value is not MISSING:
                    break
        return key, shard, MISSING if value is REMOVED else value

    def _take_back(self, index: int) -> bool:
        """A shard that was not touched since the only cut that holds it: its entries are copied for the snapshot.

        A key's way through the layers costs as much as the copies of some thirty entries, and most shards see more keys
        than that. Only for content that never changes by itself (`protect` is None).
        """
        if not self._frozen.pop(index).copy_unless_read():
            return False
        self._set_live(index, self._below[index][0])
        self._below[index] = ()
        self._cuts[index] = ()
        self._held -= 1
        return True

    def remove(self, key: Any) -> None:
        """Removes a raw key; one that is not there is no error."""
        key = canonicalize(key)
        slot = 0 if self.flat else hash(key) % self._slots
        shard = self.live[slot]
        if self._held and any(key in layer for layer in self._below[self._shard_at[slot]]):
            shard[key] = REMOVED
            self._marked = True
        else:
            shard.pop(key, None)

    @property
    def entries(self) -> int:
        """Keys with content; while a snapshot is written, those changed since may count twice."""
        live = sum(len(self._live_of(index)) for index in range(self.shard_count))
        return live + sum(len(layer) for layers in self._below for layer in layers)

    def entries_below(self, index: int) -> int:
        """About how many entries a release may have to merge. Any thread."""
        return sum(map(len, self._below[index]))

    @property
    def shard_count(self) -> int:
        """Dicts that the content is divided into, layers apart."""
        return len(self._below)

    def _live_of(self, index: int) -> dict[Any, Any]:
        entries: dict[Any, Any] = self.live[self._slots_of[index].start]
        return entries

    def _set_live(self, index: int, entries: dict[Any, Any]) -> None:
        slots = self._slots_of[index]
        self.live[slots] = [entries] * (slots.stop - slots.start)

    def keys(self) -> list[Any]:
        """The canonical keys that have content."""
        return [key for index in range(self.shard_count) for key in self.keys_of_shard(index)]

    def keys_of_shard(self, index: int) -> list[Any]:
        """Those of one shard; an index that does not exist has none."""
        if index >= self.shard_count:
            return []
        layers = (self._live_of(index), *self._below[index])
        return [key for keys, _ in pieces_of(layers, PIECE) for key in keys]

    # ------------------------------------------------------------------ growth

    def divide_if_large(self) -> None:
        """Divides the single dict into shards once it is large; not inside a call of generated code."""
        if self.flat and len(self.live[0]) + sum(map(len, self._below[0])) > self._flat_limit:
            self._divide()

    def _divide(self) -> None:
        self._slots_of = list(_neighbours(self._slots, self._weights))
        self._shard_at = [
            index for index, slots in enumerate(self._slots_of) for _ in range(slots.start, slots.stop)
        ]
        count = len(self._slots_of)
        divided = [self._divided(layer, count) for layer in (self.live[0], *self._below[0])]
        self._frozen.clear()
        cuts = self._cuts[0]
        self.live[:] = [divided[0][index] for index in self._shard_at]
        self._below = [tuple(layer[index] for layer in divided[1:]) for index in range(count)]
        self._cuts = [cuts] * count
        self._held += (count - 1) * len(cuts)
        self.flat = False

    def _divided(self, entries: dict[Any, Any], count: int) -> list[dict[Any, Any]]:
        shards: list[dict[Any, Any]] = [{} for _ in range(count)]
        by_slot = [shards[index] for index in self._shard_at]
        slots = self._slots
        for key, value in entries.items():
            by_slot[hash(key) % slots][key] = value
        return shards

    # ------------------------------------------------------------------ snapshots

    @property
    def is_held(self) -> bool:
        """True while a snapshot holds content: what is read must not be changed without `protect`."""
        return self._held > 0

    def cut(self, cut: int) -> list[tuple[int, FrozenShard]]:
        """Freezes the present content; gives (index for `release`, content) of each shard that has any.

        The numbers of cuts rise.
        """
        frozen = []
        below = self._below
        self._frozen.clear()
        for index, layers in enumerate(below):
            entries = self._live_of(index)
            if entries or layers:
                below[index] = layers = (entries, *layers)
                self._cuts[index] = (cut, *self._cuts[index])
                self._set_live(index, {})
                shard = FrozenShard(layers)
                frozen.append((WHOLE if self.flat else index, shard))
                if self.protect is None and not self._marked and len(layers) == 1:
                    self._frozen[index] = shard
        self._held += len(frozen)
        return frozen

    def release(self, cut: int, index: int) -> None:
        """The snapshot of that cut needs the shard no more; for what was released before, nothing happens."""
        # What was one dict at the cut may have been divided since.
        for shard in range(self.shard_count) if index == WHOLE else (index,):
            self._release(cut, shard)
        if not self._held:
            self._marked = False

    def _release(self, cut: int, index: int) -> None:
        cuts = self._cuts[index]
        if cut not in cuts:
            return
        self._frozen.pop(index, None)
        at = cuts.index(cut)
        layers = self._below[index]
        is_lowest = at == len(layers) - 1
        if at == 0:
            # Only this cut saw the topmost layer: what came since goes into it, in place.
            self._set_live(index, self._merged(layers[0], self._live_of(index), is_lowest))
            layers = layers[1:]
        else:
            # A newer cut sees the layer too, and must go on seeing it as it was.
            merged = self._merged(layers[at].copy(), layers[at - 1], is_lowest)
            layers = (*layers[: at - 1], merged, *layers[at + 1 :])
        self._below[index] = layers
        self._cuts[index] = cuts[:at] + cuts[at + 1 :]
        self._held -= 1

    def _merged(self, lower: dict[Any, Any], upper: dict[Any, Any], is_lowest: bool) -> dict[Any, Any]:
        """`lower` with `upper` written over it; marks have done their service where nothing lies below."""
        if not (is_lowest and self._marked):
            lower.update(upper)
            return lower
        for key, value in upper.items():
            if value is REMOVED:
                lower.pop(key, None)
            else:
                lower[key] = value
        return lower


def pieces_of(layers: Layers, size: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """Keys and contents of what a shard's dicts, the newest first, hold together, `size` at a time at most.

    No call into the interpreter is longer than a piece, so that another thread may run in between.
    """
    for position, layer in enumerate(layers):
        newer = layers[:position]
        is_alone = len(layers) == 1
        keys, values = iter(layer), iter(layer.values())
        while piece := list(islice(keys, size)):
            contents = list(islice(values, size))
            if not is_alone:
                kept = [
                    at
                    for at, key in enumerate(piece)
                    if contents[at] is not REMOVED and not any(key in other for other in newer)
                ]
                if len(kept) < len(piece):
                    piece, contents = [piece[at] for at in kept], [contents[at] for at in kept]
            if piece:
                yield piece, contents


def _neighbours(slots: int, weights: tuple[int, ...]) -> Iterator[slice]:
    """Runs of neighbouring slots, as long as the weights say in turn."""
    start = 0
    for weight in cycle(weights):
        yield slice(start, min(start + weight, slots))
        start += weight
        if start >= slots:
            return
