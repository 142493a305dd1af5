"""Keyed state on the heap: a plain dict from canonical key to value for each state name.

Owner: the task thread. Tables are keyed by canonical keys (runtime.data.keys): a raw key that hits is that key, a miss
is canonicalized and tried again. Values are fixed when they are written: mutable ones are copied once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from yarrow.datastream.state import ValueState
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.immutability import freeze_or_copy
from yarrow.runtime.data.keys import canonicalize

T = TypeVar("T")

#: Marks "no current key": outside of a record or timer of a keyed operator.
NO_KEY: Any = object()
_MISSING: Any = object()


class HeapKeyedStateBackend:
    """The keyed state of one operator's subtask."""

    def __init__(self, operator_name: str, object_reuse: bool = False) -> None:
        self._operator_name = operator_name
        self._tables: dict[str, dict[Any, Any]] = {}
        self._states: dict[str, ValueState[Any]] = {}
        self._fix: Callable[[Any], Any] | None = None if object_reuse else freeze_or_copy
        #: The key of the record or timer at hand, raw or canonical; set by the operator.
        self.current_key: Any = NO_KEY

    def table(self, name: str) -> dict[Any, Any]:
        """The dict of a state, for operators that run over it in generated code."""
        return self._tables.setdefault(name, {})

    def value_state(self, name: str, default: Any) -> ValueState[Any]:
        """The handle of a value state."""
        if name not in self._states:
            self._states[name] = HeapValueState(self, self.table(name), name, default, self._fix)
        return self._states[name]

    def require_key(self, name: str) -> Any:
        """The current key; raises when there is none."""
        if self.current_key is NO_KEY:
            raise UnsupportedFeatureError(
                f"operator '{self._operator_name}': keyed state '{name}' was used outside of a record or timer; "
                "read and write it in process_element or on_timer, not in open or close"
            )
        return self.current_key

    @property
    def entries(self) -> int:
        """Values held in all tables."""
        return sum(len(table) for table in self._tables.values())


class HeapValueState(ValueState[T], Generic[T]):
    """One value a key."""

    def __init__(
        self,
        backend: HeapKeyedStateBackend,
        table: dict[Any, Any],
        name: str,
        default: Any,
        fix: Callable[[Any], Any] | None,
    ) -> None:
        self._backend = backend
        self._table = table
        self._name = name
        self._default = default
        self._fix = fix

    def value(self) -> T | None:
        key = self._backend.current_key
        try:
            found: T | None = self._table[key]
            return found
        except (KeyError, TypeError):
            canonical = canonicalize(self._backend.require_key(self._name))
            found = self._table.get(canonical, self._default)
            return found

    def update(self, value: T) -> None:
        table, key = self._table, self._backend.current_key
        try:
            known = key in table
        except TypeError:
            known = False
        if not known:
            key = canonicalize(self._backend.require_key(self._name))
        table[key] = value if self._fix is None else self._fix(value)

    def clear(self) -> None:
        key = self._backend.require_key(self._name)
        try:
            found = self._table.pop(key, _MISSING)
        except TypeError:  # not hashable: canonicalize tells what it is
            found = _MISSING
        if found is _MISSING:
            self._table.pop(canonicalize(key), None)
