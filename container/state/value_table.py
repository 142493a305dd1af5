"""ValueTable: one value a key, as generated code of reduce and the built-in aggregates reads and writes it.

Owner: the task thread. The code works on plain dicts and leaves them only on a miss, so that a backend costs nothing
where the value is at hand. A table must not know what the values mean, nor what the operator does with them.

What generated code does (container.operators.rows.keyed_aggregation writes it):

- once a call: `table = live[0]; sharded = len(live) > 1`, and, for the head of a chain where `wants_keys` is true,
  `prefetch(keys of all rows)`;
- once a row: `if sharded: table = live[hash(key) % len(live)]`, then `table[key]`; a key that is not there, that cannot
  be hashed or is not canonical goes to `miss`, which gives the canonical key, the dict to write to and the value;
- every key that was read is written in the same row: `table[key] = new value`, fixed already.

What a table promises: the list `live` stays the same object for ever; its dicts are exchanged, and its length changes,
between two calls of generated code only (in a cut, a mail or `end_of_chunk` of the backend), or in `prefetch`, which
the code calls before it looks at `live`; `miss` may add entries. No dict of `live` shows the code anything but values:
no tombstone, nothing encoded.

For a backend on disk: whatever stands in `live[0]` after a call was written by it, or prefetched for it. Such a table
puts the decoded values of the keys of a chunk into `live[0]` in `prefetch`, reads single ones in `miss`, takes all of
`live[0]` as changed in `end_of_chunk` of its backend, and begins the next chunk with what it chooses to keep there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from operator import length_hint
from typing import Any, Final

#: "No value": what a table gives for a key that has none; never stored.
MISSING: Final[Any] = object()
_LIST_ITERATOR: Final[type[Iterator[Any]]] = type(iter([]))


class ValueTable(ABC):
    """One value a key, in dicts that generated code uses directly."""

    #: True where `prefetch` with the keys of a chunk makes the rows after it cheaper.
    wants_keys: bool = False

    def __init__(self) -> None:
        #: Dicts from canonical key to value: one, or several chosen by `hash(key) % len(live)`.
        self.live: list[dict[Any, Any]] = [{}]

    @abstractmethod
    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """(canonical key, dict of `live` to write it to, value or MISSING) of a raw key not found in its dict.

        Raises UnsupportedKeyError for what cannot be a key.
        """

    def prefetch(self, keys: Sequence[Any]) -> None:
        """The raw keys of the rows that come, in their order, with repetitions.

        A key that cannot be one is passed over: its row fails in `miss`, with its record.
        """
        return None


def chunk_keys(
    select: Callable[[Any], Any], rows: Iterable[Any], prefetch: Callable[[Sequence[Any]], None]
) -> tuple[Iterable[Any], Iterator[Any]]:
    """(the rows, their keys one by one), after `prefetch` was told of all keys.

    An iterator over a list is handed back as it is, and not moved: whoever cuts the chunk at hand cuts the loop short,
    whose last keys are then not asked for. An error of the key selector is raised in the place of its row's key, behind
    the keys of the rows before it.
    """
    if isinstance(rows, Sequence):
        coming: Iterable[Any] = rows
    elif type(rows) is _LIST_ITERATOR:
        coming = copy(rows)
    else:
        coming = rows = list(rows)
    keys: list[Any] = []
    failure: BaseException | None = None
    try:
        for row in coming:
            keys.append(select(row))
    except BaseException as error:  # user code may raise anything
        failure = error
    prefetch(keys)
    return rows, iter(keys) if failure is None else _then(keys, failure)


class KeysAhead:
    """The keys of rows of which only the first are run at once: told to the state together, taken a chunk at a time.

    The loop takes one key a row, so the keys that are left are those of the rows that are left, wherever it was cut.
    """

    def __init__(self, select: Callable[[Any], Any], prefetch: Callable[[Sequence[Any]], None]) -> None:
        self._select = select
        self._prefetch = prefetch
        self._keys: Iterator[Any] = iter([])

    def read(self, rows: Sequence[Any]) -> None:
        """Tells the state the keys of `rows`, which come next, in one chunk or several."""
        _, self._keys = chunk_keys(self._select, rows, self._prefetch)

    def of_chunk(self, rows: Iterable[Any]) -> tuple[Iterable[Any], Iterator[Any]]:
        """(the rows, their keys one by one); where nobody has read ahead, as `chunk_keys`."""
        keys = self._keys
        if type(keys) is _LIST_ITERATOR and not length_hint(keys):
            return chunk_keys(self._select, rows, self._prefetch)
        return rows, keys


def _then(keys: list[Any], failure: BaseException) -> Iterator[Any]:
    yield from keys
    raise failure
