"""HeapStates: handles of value, list, map, reducing and aggregating state over a HeapTable.

Owner: the task thread. Dicts are searched by the raw key first; only a miss makes the canonical key. Written
values are copied if they could change. Values that a running snapshot holds are copied before they can be
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.heap_table import HeapTable
from yarrow.container.state.registering_backend import RegisteringBackend
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from yarrow.datastream.state.folding import Aggregation, Reduction
from yarrow.runtime.data.map_keys import map_key

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")

Copier = Callable[[Any], Any]


class HeapState:
    """The base of all handles: the table, and the access to the content of the current key."""

    def __init__(self, backend: RegisteringBackend, table: HeapTable, name: str, fix: Copier | None) -> None:
        self._backend = backend
        self._table = table
        self._name = name
        #: Copies a written value that could change; None if no value can.
        self._fix = fix

    def _found(self) -> Any:
        """The content, or MISSING; a copy if a snapshot holds the content and it could be changed."""
        table = self._table
        key = self._backend.current_key
        try:
            # Without a KeyError: while a snapshot holds the table each key misses once, and an exception
            # costs as much as a copy.
            content = table.shard_of(key).get(key, MISSING)
        except TypeError:
            content = MISSING
        if content is MISSING:
            return table.miss(self._backend.require_key(self._name))[2]
        return content

    def _put(self, content: Any) -> None:
        key, table = self._backend.current_key, self._table
        try:
            shard = table.shard_of(key)
            # Integers and texts are canonical; while the table is dividing they may be elsewhere.
            known = key in shard or (not table.dividing and (type(key) is int or type(key) is str))
        except TypeError:
            known = False
        if not known:
            key, shard, _ = table.peek(self._backend.require_key(self._name))
        shard[key] = content

    def _keep(self, folded: Any) -> None:
        """Keeps the result of a function; None removes the content, as in every backend."""
        if folded is None:
            self.clear()
        else:
            self._put(folded)

    def clear(self) -> None:
        """See State."""
        self._table.remove(self._backend.require_key(self._name))


class HeapValueState(HeapState, ValueState[T], Generic[T]):
    """The handle of a value state: one value for each key."""

    def value(self) -> T | None:
        found: Any = self._found()
        value: T | None = None if found is MISSING else found
        return value

    def update(self, value: T) -> None:
        if value is None:
            self.clear()
        else:
            self._put(value if self._fix is None else self._fix(value))


class HeapReducingState(HeapState, ReducingState[T], Generic[T]):
    """The handle of a reducing state.

    The function may change the value in place, so added values are copied, not the result.
    """

    def __init__(
        self,
        backend: RegisteringBackend,
        table: HeapTable,
        name: str,
        fix: Copier | None,
        function: Reduction[T],
    ) -> None:
        super().__init__(backend, table, name, fix)
        self._reduce = function.reduce

    def get(self) -> T | None:
        found: Any = self._found()
        value: T | None = None if found is MISSING else found
        return value

    def add(self, value: T) -> None:
        if value is None:
            raise refuse_none(self._backend.context.operator_name, self._name)
        if self._fix is not None:
            value = self._fix(value)
        found: Any = self._found()
        self._keep(value if found is MISSING else self._reduce(found, value))


class HeapAggregatingState(HeapState, AggregatingState[IN, OUT], Generic[IN, OUT]):
    """The handle of an aggregating state, whose function may change the accumulator in place."""

    def __init__(
        self,
        backend: RegisteringBackend,
        table: HeapTable,
        name: str,
        fix: Copier | None,
        function: Aggregation[IN, Any, OUT],
    ) -> None:
        super().__init__(backend, table, name, fix)
        self._function = function

    def get(self) -> OUT | None:
        found = self._found()
        return None if found is MISSING else self._function.get_result(found)

    def add(self, value: IN) -> None:
        if value is None:
            raise refuse_none(self._backend.context.operator_name, self._name)
        if self._fix is not None:
            value = self._fix(value)
        found = self._found()
        accumulator = self._function.create_accumulator() if found is MISSING else found
        self._keep(self._function.add(value, accumulator))


class HeapListState(HeapState, ListState[T], Generic[T]):
    """The handle of a list state, which appends in place.

    The first change after a cut copies the list, not its elements.
    """

    def get(self) -> Iterable[T]:
        table = self._table
        found: Any = self._shared()
        if found is MISSING:
            return []
        if table.protect is not None and table.is_held:
            return list(map(table.protect, found))
        return list(found)

    def _shared(self) -> Any:
        """The list itself, which must not be changed, or MISSING."""
        backend, table = self._backend, self._table
        try:
            return table.shard_of(backend.current_key)[backend.current_key]
        except (KeyError, TypeError):
            return table.peek(backend.require_key(self._name))[2]

    def add(self, value: T) -> None:
        if value is None:
            raise self._none()
        if self._fix is not None:
            value = self._fix(value)
        backend, table = self._backend, self._table
        try:
            table.shard_of(backend.current_key)[backend.current_key].append(value)
        except (KeyError, TypeError):
            key, shard, found = table.peek(backend.require_key(self._name))
            shard[key] = [value] if found is MISSING else [*found, value]

    def add_all(self, values: list[T]) -> None:
        added = self._fixed(values)
        if not added:
            return
        backend, table = self._backend, self._table
        key, shard, found = table.peek(backend.require_key(self._name))
        if found is MISSING:
            shard[key] = added
        elif key in shard:
            found += added
        else:
            shard[key] = [*found, *added]

    def update(self, values: list[T]) -> None:
        kept = self._fixed(values)
        if kept:
            self._put(kept)
        else:
            self.clear()

    def _fixed(self, values: Iterable[T]) -> list[T]:
        fixed = list(values) if self._fix is None else [self._fix(value) for value in values]
        if any(value is None for value in fixed):
            raise self._none()
        return fixed

    def _none(self) -> Exception:
        return refuse_none(self._backend.context.operator_name, self._name)


class HeapMapState(HeapState, MapState[K, V], Generic[K, V]):
    """The handle of a map state: a dict for each key.

    The first change after a cut copies the dict, not its values.
    """

    def __init__(
        self,
        backend: RegisteringBackend,
        table: HeapTable,
        name: str,
        fix: Copier | None,
        shown_key: Callable[[Any], Any],
    ) -> None:
        """`shown_key` converts a key of the dict to the program's form."""
        super().__init__(backend, table, name, fix)
        self._shown_key = shown_key

    def _map(self) -> dict[K, V] | None:
        """The dict, which must not be changed, or None."""
        backend, table = self._backend, self._table
        try:
            content: Any = table.shard_of(backend.current_key)[backend.current_key]
        except (KeyError, TypeError):
            content = table.peek(backend.require_key(self._name))[2]
        found: dict[K, V] | None = None if content is MISSING else content
        return found

    def _own(self, make: bool) -> dict[K, V] | None:
        """The dict for a change, which no snapshot holds; None if there is none and `make` is false."""
        backend, table = self._backend, self._table
        try:
            own: dict[K, V] = table.shard_of(backend.current_key)[backend.current_key]
            return own
        except (KeyError, TypeError):
            pass
        key, shard, found = table.peek(backend.require_key(self._name))
        if found is MISSING and not make:
            return None
        own = shard[key] = {} if found is MISSING else found if key in shard else dict(found)
        return own

    def _shown(self, value: V) -> V:
        table = self._table
        if table.protect is not None and table.is_held:
            copied: V = table.protect(value)
            return copied
        return value

    def get(self, key: K) -> V | None:
        entries = self._map()
        if entries is None:
            return None
        try:
            return self._shown(entries[key])
        except (KeyError, TypeError):
            value = entries.get(map_key(key))
            return None if value is None else self._shown(value)

    def put(self, key: K, value: V) -> None:
        # An invalid key, or a value that cannot be copied, must not leave an empty map behind.
        key, value = map_key(key), value if self._fix is None else self._fix(value)
        entries = self._own(make=True)
        assert entries is not None
        entries[key] = value

    def put_all(self, dict_value: Mapping[K, V]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: K) -> None:
        key = map_key(key)
        entries = self._map()
        if entries is None or key not in entries:
            return
        if len(entries) == 1:
            self.clear()
            return
        own = self._own(make=False)
        assert own is not None
        del own[key]

    def contains(self, key: K) -> bool:
        entries = self._map()
        return entries is not None and map_key(key) in entries

    def items(self) -> Iterable[tuple[K, V]]:
        entries = self._map() or {}
        return ((self._shown_key(key), self._shown(value)) for key, value in entries.items())

    def keys(self) -> Iterable[K]:
        return map(self._shown_key, self._map() or ())

    def values(self) -> Iterable[V]:
        return (value for _, value in self.items())

    def is_empty(self) -> bool:
        return not self._map()
