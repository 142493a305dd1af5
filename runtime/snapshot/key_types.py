"""The type of keys beside keyed state: what a snapshot says of it, and whether a program's is another.

A type is written where the keys of the snapshot bear it out: nobody looks at keys while rows are processed, so that a
program may declare what its selector does not give. Owner: the calling thread (the snapshot thread while writing); no
backends, no values.
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

#: Runs of which one key is looked at: what a program declares wrongly is wrong of nearly all of them.
MOST_LOOKED_AT: Final = 256


class KeyTypeEvidence:
    """What of a declared key type is true of the keys that are written; one of each of the first runs is looked at."""

    def __init__(self, declared: TypeInformation | None) -> None:
        self._type = declared
        self._seen = False

    def observe(self, key: Any) -> None:
        """A canonical key."""
        self._seen = True
        if self._type is not None:
            self._type = borne_out(self._type, key)

    def observe_by(self, read: Callable[[], Any]) -> None:
        """A key that is read first; one of a class that is not here is of no declared type."""
        try:
            self.observe(read())
        except (ValueError, KeyDecodeError):
            self._type = None

    def of_runs(self, runs: Iterable[Run]) -> Iterator[Run]:
        """The same runs; looked at as they pass."""
        for number, run in enumerate(runs):
            if self._type is not None and number < MOST_LOOKED_AT and len(run.keys):
                self.observe(run.keys[0])
            yield run

    def of_encoded(self, runs: Iterable[EncodedRun]) -> Iterator[EncodedRun]:
        """The same for runs that are carried on."""
        for number, run in enumerate(runs):
            if self._type is not None and number < MOST_LOOKED_AT and run.entries:
                self.observe_by(partial(key_like_first, run.key_form, memoryview(run.keys)))
            yield run

    def spec(self) -> TypeSpec | msgspec.UnsetType:
        """For the handle, when all keys have passed; UNSET where nothing is known of them."""
        found = self._type
        if found is None or not self._seen or isinstance(found, PickledBytesTypeInfo):
            return msgspec.UNSET
        return found.to_spec()


def key_type_of(spec: TypeSpec | msgspec.UnsetType) -> TypeInformation | None:
    """The type that a handle or an operator names; None where it names none, or one of a later release."""
    if spec is None or spec is msgspec.UNSET:
        return None
    with suppress(ValueError):
        return TypeInformation.from_spec(spec)
    return None


def check_key_type(
    operator: str, handles: Iterable[KeyedStateHandle], declared: TypeInformation | None
) -> None:
    """Raises SavepointMismatchError where state was written for keys that cannot be those of the program."""
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
