"""ValueTable: one value a key, for the generated code of reduce and the built-in aggregates.

Owner: the task thread. The code works on plain dicts and leaves them only on a miss, so that a cached value
costs nothing more. A table must not know the meaning of values, nor the operator's use of them.

What generated code does (container.operators.rows.keyed_aggregation writes it):

- once a call: `table = live[0]; sharded = len(live) > 1`. The head of a chain calls
  `prefetch(keys of all rows)` if `wants_keys` is true;
- once a row: `if sharded: table = live[hash(key) % len(live)]`, then `table[key]`. For a key that is missing, not
  hashable or not canonical it calls `miss`. That returns the canonical key, the dict to write to and the value.
- every key that was read is written in the same row: `table[key] = new value`, already copied.

Promises of a table: the list `live` stays the same object for ever. Its dicts and its length change only between
two calls of generated code, or in `prefetch`. Between calls that is a cut, a mail or `end_of_chunk`. The code calls
`prefetch` before it reads `live`; `miss` may add entries, and `remove` takes some away. The dicts of `live` contain
only values: no tombstone, nothing encoded.

For a backend on disk: the entries of `live[0]` after a call were written by it or prefetched for it. Its
`prefetch` puts the decoded values for the keys of a chunk into `live[0]`, and `miss` reads single values. The
backend's `end_of_chunk` takes all of `live[0]` as changed. The next chunk begins with the entries that the
table chooses to keep there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from operator import length_hint
from typing import Any, Final

from yarrow.runtime.data.keys import canonicalize

#: "No value": the table's answer for a key without one; never stored.
MISSING: Final[Any] = object()
_LIST_ITERATOR: Final[type[Iterator[Any]]] = type(iter([]))


class ValueTable(ABC):
    """One value a key, in dicts that generated code uses directly."""

    #: True if `prefetch` with the keys of a chunk makes its rows cheaper.
    wants_keys: bool = False

    def __init__(self) -> None:
        #: Dicts from canonical key to value: one, or several chosen by `hash(key) % len(live)`.
        self.live: list[dict[Any, Any]] = [{}]

    @abstractmethod
    def miss(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """(canonical key, dict of `live` to write to, value or MISSING) for a raw key that is not in its dict.

        Raises UnsupportedKeyError for an invalid key.
        """

    def find(self, key: Any) -> tuple[Any, dict[Any, Any], Any]:
        """(canonical key, dict of `live` to write to, value or MISSING) for a canonical key, outside generated code.

        The value may be changed: no snapshot sees it.
        """
        live = self.live
        entries = live[0] if len(live) == 1 else live[hash(key) % len(live)]
        value = entries.get(key, MISSING)
        return self.miss(key) if value is MISSING else (key, entries, value)

    def read(self, key: Any) -> Any:
        """The value of a canonical key, which must not be changed; MISSING if it has none."""
        return self.find(key)[2]

    @abstractmethod
    def remove(self, key: Any) -> None:
        """Removes a raw key; no effect if it has no value. Raises UnsupportedKeyError for an invalid key.

        The dicts of `live` stay the same, so generated code may go on with them.
        """

    def copy_by(self, copier: Callable[[Any], Any]) -> None:
        """Sets the function that copies values which a snapshot holds. Call it before the first look at a key.

        By default that follows from their type. A backend that copies none needs no copier.
        """
        return None

    def take(self, key: Any) -> Any:
        """Removes a raw key and returns its value, or MISSING. The value belongs to the caller, as that of `miss`."""
        key, _, value = self.find(canonicalize(key))
        if value is not MISSING:
            self.remove(key)
        return value

    @property
    def whole(self) -> dict[Any, Any] | None:
        """The dict with all values, for this piece of work; None = some may lie elsewhere, and only `miss` finds them.

        Its entries may be replaced by new values.
        """
        return None

    def put_all(self, keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Sets the values of canonical keys."""
        for key, value in zip(keys, values, strict=True):
            self.miss(key)[1][key] = value

    def dicts(self) -> list[dict[Any, Any]]:
        """The dicts of `live`, each once; all content where a table keeps none elsewhere."""
        return list({id(entries): entries for entries in self.live}.values())

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Takes the raw keys of the next rows, in their order, with repetitions.

        An invalid key is skipped: its row fails in `miss`, with its record.
        """
        return None


def chunk_keys(
    select: Callable[[Any], Any], rows: Iterable[Any], prefetch: Callable[[Sequence[Any]], None]
) -> tuple[Iterable[Any], Iterator[Any]]:
    """Passes all keys to `prefetch`; returns the rows and an iterator over their keys.

    An iterator over a list is returned as it is, and not advanced. A cut of the present chunk shortens the
    loop, and the last keys are then never read. An error of the key selector is raised at its row's key,
    behind the keys of the rows before it.
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
    """The keys of rows of which only the first run at once: passed to the state together, taken a chunk at a time.

    The loop takes one key a row, so the remaining keys are those of the remaining rows, wherever it was cut.
    """

    def __init__(self, select: Callable[[Any], Any], prefetch: Callable[[Sequence[Any]], None]) -> None:
        self._select = select
        self._prefetch = prefetch
        self._keys: Iterator[Any] = iter([])

    def read(self, rows: Sequence[Any]) -> None:
        """Passes the keys of `rows`, which run next in one or several chunks, to the state."""
        _, self._keys = chunk_keys(self._select, rows, self._prefetch)

    def of_chunk(self, rows: Iterable[Any]) -> tuple[Iterable[Any], Iterator[Any]]:
        """The rows and an iterator over their keys; without a read ahead, like `chunk_keys`."""
        keys = self._keys
        if type(keys) is _LIST_ITERATOR and not length_hint(keys):
            return chunk_keys(self._select, rows, self._prefetch)
        return rows, keys


def _then(keys: list[Any], failure: BaseException) -> Iterator[Any]:
    yield from keys
    raise failure
