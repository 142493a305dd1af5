"""KeyTypes: type and columns of keys beside keyed state, and their comparison with a program's.

Nobody checks keys while rows are processed, so a program may declare another type than its selector returns.
So what is declared is written only if the keys of the snapshot confirm it. Owner: the calling thread (the
snapshot thread while writing); no backends, no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from yarrow.common.typeinfo import PickledBytesTypeInfo, TypeInformation
from yarrow.runtime.data.errors import KeyDecodeError
from yarrow.runtime.data.key_types import borne_out, keys_may_meet
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.handles import KeyedStateHandle
from yarrow.runtime.snapshot.key_columns import key_like_first
from yarrow.runtime.snapshot.key_group_form import EncodedRun, Run

#: Number of runs of which one key is checked: a wrong declaration is wrong for nearly all keys.
MOST_LOOKED_AT: Final = 256


class KeyEvidence:
    """Tells which part of what is declared of keys the written ones confirm, by one key of each of the first runs."""

    def __init__(self, declared: TypeInformation | None, columns: tuple[str, ...] = ()) -> None:
        """`columns`: those whose values the keys are, as tuples in that order."""
        self._type = declared
        self._columns = columns
        self._seen = False

    def observe(self, key: Any) -> None:
        """Checks a canonical key."""
        self._seen = True
        if self._type is not None:
            self._type = borne_out(self._type, key)
        if type(key) is not tuple or len(key) != len(self._columns):
            self._columns = ()

    def observe_by(self, read: Callable[[], Any]) -> None:
        """Checks a key that must first be read; a key of a missing class has no declared type."""
        try:
            self.observe(read())
        except (ValueError, KeyDecodeError):
            self._type, self._columns = None, ()

    def of_runs(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Passes runs through and checks them."""
        for number, run in enumerate(runs):
            if self._is_open and number < MOST_LOOKED_AT and len(run.keys):
                self.observe(run.keys[0])
            yield run

    def of_encoded(self, runs: Iterable[EncodedRun]) -> Iterator[EncodedRun]:
        """Passes carried runs through and checks them."""
        for number, run in enumerate(runs):
            if self._is_open and number < MOST_LOOKED_AT and run.entries:
                self.observe_by(partial(key_like_first, run.key_form, memoryview(run.keys)))
            yield run

    @property
    def _is_open(self) -> bool:
        return self._type is not None or bool(self._columns)

    @property
    def confirms(self) -> bool:
        """Whether the keys confirm anything."""
        return self.spec() is not msgspec.UNSET or self.columns() is not msgspec.UNSET

    def columns(self) -> tuple[str, ...] | msgspec.UnsetType:
        """The columns for the handle, after all keys; UNSET if the keys are no tuples of them."""
        return self._columns if self._seen and self._columns else msgspec.UNSET

    def spec(self) -> TypeSpec | msgspec.UnsetType:
        """The type for the handle, after all keys; UNSET if nothing is known of them."""
        found = self._type
        if found is None or not self._seen or isinstance(found, PickledBytesTypeInfo):
            return msgspec.UNSET
        return found.to_spec()


def key_type_of(spec: TypeSpec | msgspec.UnsetType) -> TypeInformation | None:
    """The type in a handle or operator; None if it names none, or one of a later release."""
    if spec is None or spec is msgspec.UNSET:
        return None
    with suppress(ValueError):
        return TypeInformation.from_spec(spec)
    return None


def check_keys(
    operator: str,
    handles: Sequence[KeyedStateHandle],
    declared: TypeInformation | None,
    columns: tuple[str, ...] = (),
) -> None:
    """Raises SavepointMismatchError if state was written for keys of another type, or with columns in other places.

    Columns may get other names, which no key contains. So only those that both name are compared.
    """
    types: dict[TypeInformation, dict[str, None]] = {}
    orders: dict[tuple[str, ...], dict[str, None]] = {}
    for handle in handles:
        names = dict.fromkeys(state.name for state in handle.states)
        was = key_type_of(handle.key_type)
        if was is not None and not keys_may_meet(was, declared):
            types.setdefault(was, {}).update(names)
        order = handle.key_columns
        if order is not msgspec.UNSET and _is_moved(order, columns):
            orders.setdefault(order, {}).update(names)
    for was, states in types.items():
        raise _refusal(
            operator,
            states,
            f"keys of type {was}, and the program's keys are of type {declared}: none of the former ones would be "
            "found",
            "Key by the type that it was (key_by, key_type)",
        )
    for order, states in orders.items():
        raise _refusal(
            operator,
            states,
            f"keys of the columns {list(order)}, and the program's keys are of the columns {list(columns)}: a key "
            "would find nothing, or the state of another key",
            "Name the columns in key_by in their former order",
        )


def _is_moved(was: tuple[str, ...], now: tuple[str, ...]) -> bool:
    """Whether a column that both name stands at another place."""
    return any(name in now and now.index(name) != place for place, name in enumerate(was))


def _refusal(operator: str, states: Iterable[str], difference: str, advice: str) -> SavepointMismatchError:
    listed = ", ".join(f"'{name}'" for name in states)
    return SavepointMismatchError(
        operator,
        f"operator '{operator}': its keyed state ({listed}) was written for {difference}. {advice}, or rewrite the "
        "keys with yarrow.state_processor (transform_state with the new key_type). Or drop this state: give the "
        "operator another uid and restore with run -n (execution.state-recovery.ignore-unclaimed-state: true).",
    )
