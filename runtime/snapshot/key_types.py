"""KeyTypes: the type of keys beside keyed state, and its comparison with a program's.

Nobody checks keys while rows are processed, so a program may declare another type than its selector returns.
So the declared type is written only if the keys of the snapshot confirm it. Owner: the calling thread (the
snapshot thread while writing); no backends, no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
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


class KeyTypeEvidence:
    """Tells which part of a declared key type the written keys confirm, by one key of each of the first runs."""

    def __init__(self, declared: TypeInformation | None) -> None:
        self._type = declared
        self._seen = False

    def observe(self, key: Any) -> None:
        """Checks a canonical key."""
        self._seen = True
        if self._type is not None:
            self._type = borne_out(self._type, key)

    def observe_by(self, read: Callable[[], Any]) -> None:
        """Checks a key that must first be read; a key of a missing class has no declared type."""
        try:
            self.observe(read())
        except (ValueError, KeyDecodeError):
            self._type = None

    def of_runs(self, runs: Iterable[Run]) -> Iterator[Run]:
        """Passes runs through and checks them."""
        for number, run in enumerate(runs):
            if self._type is not None and number < MOST_LOOKED_AT and len(run.keys):
                self.observe(run.keys[0])
            yield run

    def of_encoded(self, runs: Iterable[EncodedRun]) -> Iterator[EncodedRun]:
        """Passes carried runs through and checks them."""
        for number, run in enumerate(runs):
            if self._type is not None and number < MOST_LOOKED_AT and run.entries:
                self.observe_by(partial(key_like_first, run.key_form, memoryview(run.keys)))
            yield run

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


def check_key_type(
    operator: str, handles: Iterable[KeyedStateHandle], declared: TypeInformation | None
) -> None:
    """Raises SavepointMismatchError if state was written for keys of another type than the program's."""
    if declared is None:
        return
    stored: dict[TypeInformation, dict[str, None]] = {}
    for handle in handles:
        was = key_type_of(handle.key_type)
        if was is not None and was != declared:
            stored.setdefault(was, {}).update(dict.fromkeys(state.name for state in handle.states))
    for was, names in stored.items():
        if not keys_may_meet(was, declared):
            raise SavepointMismatchError(operator, _refusal(operator, was, declared, list(names)))


def _refusal(operator: str, was: TypeInformation, now: TypeInformation, states: list[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in states)
    return (
        f"operator '{operator}': its keyed state ({listed}) was written for keys of type {was}, and the program's keys "
        f"are of type {now}: none of the former ones would be found. Key by the type that it was (key_by, key_type), "
        "rewrite the keys with yarrow.state_processor, or drop this state: give the operator another uid and restore "
        "with run -n (execution.state-recovery.ignore-unclaimed-state: true)."
    )
