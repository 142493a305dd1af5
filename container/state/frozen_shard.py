"""FrozenShard: the dicts of one shard of a HeapTable at a cut, for the snapshot thread.

Owner: the snapshot thread, except `copy_unless_read`, which is for the task thread. Frozen dicts do not
change until the task thread has the shard back. Except `copy_unless_read`, no call holds the interpreter for
longer than a piece.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from yarrow.runtime.snapshot.key_columns import Objects, objects_of

#: Marks a removed key that a lower dict still holds.
REMOVED: Final[Any] = object()
#: Entries that are processed at once while other threads wait for the interpreter.
PIECE: Final = 4_000

#: The dicts of one shard, the newest first.
Layers = tuple[dict[Any, Any], ...]
#: Seconds that the snapshot thread waits for a copy by the task thread.
_COPYING_SECONDS: Final = 0.0005


class FrozenShard:
    """One shard as it was at a cut, for the snapshot thread.

    The first thread that asks gets the shard. For the snapshot thread, the dicts then stay unchanged until
    the release. The task thread instead copies their entries in two calls, and continues to use the dict
    itself. If the content cannot change, the snapshot thread copies the first dict before it writes anything, a
    piece at a time. The dict then goes back at once, and not only when all is written.
    """

    __slots__ = ("_copied", "_free", "_is_read", "is_copied_ahead", "layers")

    def __init__(self, layers: Layers, is_copied_ahead: bool = False) -> None:
        self.layers = layers
        #: Whether the snapshot thread should call `copy_ahead` and release the shard. Tables by window are not copied
        #: ahead.
        self.is_copied_ahead = is_copied_ahead
        #: One entry until a thread takes it: `pop` of a list is atomic.
        self._free = [True]
        self._is_read = False
        self._copied: list[tuple[Objects, Objects]] | None = None

    def pieces(self, size: int) -> Iterator[tuple[list[Any], list[Any]]]:
        """Keys and contents, at most `size` at a time. Snapshot thread."""
        if not self._is_read:
            self._is_read = self._take()
        if self._is_read:
            yield from pieces_of(self.layers, size)
            return
        while self._copied is None:
            time.sleep(_COPYING_SECONDS)
        for keys, contents in self._copied:
            for start in range(0, len(keys), size):
                yield list(keys[start : start + size]), list(contents[start : start + size])

    def copy_ahead(self) -> None:
        """Copies the entries, unless the task thread did, so that the shard can be released. Snapshot thread."""
        if self._take():
            self._copied = [
                (objects_of(keys), objects_of(contents)) for keys, contents in pieces_of(self.layers, PIECE)
            ]
            self.layers = ()

    def copy_unless_read(self) -> bool:
        """Copies the entries unless the snapshot thread reads them; True if the dict may be changed now.

        Task thread.
        """
        if not self._take():
            return False
        (entries,) = self.layers
        self.layers = ()
        # `objects_of` asks for the length before it reads.
        self._copied = [(objects_of(entries.keys()), objects_of(entries.values()))]
        return True

    def _take(self) -> bool:
        try:
            return self._free.pop()
        except IndexError:
            return False


def pieces_of(layers: Layers, size: int) -> Iterator[tuple[list[Any], list[Any]]]:
    """Keys and contents of a shard's dicts, newest first, merged, at most `size` at a time.

    No call into the interpreter is longer than a piece, so that other threads can run in between.
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
                found = [(piece, contents)]
                # No reference here keeps the lists alive while the caller uses the piece.
                del piece, contents
                yield found.pop()
