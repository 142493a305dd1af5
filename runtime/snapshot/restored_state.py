"""RestoredKeyedState: the canonical keyed state with which one subtask begins, state by state.

A backend requests a state when the program registers it, and gets its entries migrated to the present type.
States that nobody requests are carried into the next snapshots, not lost. Owner: the task thread; `carried`
returns immutable runs that the snapshot thread may write. It must not know backends or the place of bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.errors import SnapshotFormatError, StateMigrationError
from yarrow.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupsSnapshot,
    SerializerConfig,
    StateHandle,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_group_form import EncodedRun, StateForm, decoded_run, encoded_runs
from yarrow.runtime.snapshot.value_serializers import ValueSerializer, restored_serializer


class RestoredRun(NamedTuple):
    """Entries of one key group, with values as in StateForm."""

    key_group: int
    keys: list[Any]
    values: list[Any]


class RestoredTimer(NamedTuple):
    """One timer; the key is canonical."""

    timestamp: int
    key: Any
    namespace: Any


class _StoredState:
    """One state from one handle."""

    def __init__(self, meta: StateMetaInfo) -> None:
        self.meta = meta
        self.runs: list[EncodedRun] = []


class RestoredKeyedState:
    """The content of canonical snapshots among `handles` within `key_groups`; other handles are the backend's own.

    `read` returns the verified bytes of a handle; it is called once a handle, at the first request for a
    state. `trusted`: pickled values may be read.
    """

    def __init__(
        self,
        handles: Sequence[KeyedStateHandle],
        key_groups: KeyGroupRange,
        read: Callable[[StateHandle], bytes],
        operator_name: str,
        *,
        trusted: bool,
    ) -> None:
        self._operator = operator_name
        self._key_groups = key_groups
        self._read = read
        self._trusted = trusted
        self._unread = [
            handle
            for handle in handles
            if isinstance(handle, KeyGroupsSnapshot)
            and key_groups.intersection(KeyGroupRange(*handle.key_groups)).number_of_key_groups
        ]
        self._stored: dict[str, list[_StoredState]] = {}
        for handle in self._unread:
            for meta in handle.states:
                self._stored.setdefault(meta.name, [])

    def names(self) -> list[str]:
        """Names of states that nobody has requested yet."""
        return list(self._stored)

    def take(
        self,
        name: str,
        kind: StateKind,
        value_type: TypeInformation | None,
        map_key_type: TypeInformation | None = None,
        *,
        ttl: bool = False,
        access_time_ms: int = 0,
    ) -> Iterator[RestoredRun]:
        """The entries of a state, run by run; afterwards they belong to the backend.

        If only the present declaration has a time to live, values get `access_time_ms` as their last access.
        Raises StateMigrationError at once, other errors of values while it is iterated.
        """
        self._load()
        stored = self._stored.pop(name, [])
        try:
            forms = [self._form(state.meta, kind, value_type, map_key_type) for state in stored]
        except StateMigrationError:
            self._stored[name] = stored  # refused: the restored state stays
            raise
        return self._runs(stored, forms, ttl, access_time_ms)

    def take_timers(
        self, name: str, namespace_type: TypeInformation | None = None
    ) -> Iterator[RestoredTimer]:
        """The timers under that name."""
        for run in self.take(name, StateKind.TIMERS, namespace_type):
            for key, (timestamp, namespace) in zip(run.keys, run.values, strict=True):
                yield RestoredTimer(timestamp, key, namespace)

    def carried(self, first_state: int) -> tuple[list[StateMetaInfo], list[EncodedRun]]:
        """States that nobody has requested, to be written behind those of the backend.

        Their numbers begin at `first_state`.
        """
        self._load()
        metas: list[StateMetaInfo] = []
        runs: list[EncodedRun] = []
        for stored in self._stored.values():
            for state in stored:
                number = first_state + len(metas)
                metas.append(state.meta)
                # Copies, so that the rest of the read bytes need not stay in memory.
                state.runs = [
                    run._replace(keys=bytes(run.keys), values=bytes(run.values)) for run in state.runs
                ]
                runs += [run._replace(state=number) for run in state.runs]
        return metas, runs

    def _load(self) -> None:
        while self._unread:
            handle = self._unread[0]
            states = [_StoredState(meta) for meta in handle.states]
            try:
                for run in encoded_runs(self._read(handle.handle), self._key_groups):
                    states[run.state].runs.append(run)
            except (SnapshotFormatError, IndexError) as error:
                raise SnapshotFormatError(f"operator '{self._operator}': {error}") from error
            for state in states:
                self._stored[state.meta.name].append(state)
            self._unread.pop(0)

    def _form(
        self,
        meta: StateMetaInfo,
        kind: StateKind,
        value_type: TypeInformation | None,
        map_key_type: TypeInformation | None,
    ) -> StateForm:
        if meta.kind is not kind:
            raise StateMigrationError(
                self._operator, meta.name, "", f"{meta.kind.value} state", f"{kind.value} state",
                "Declare the state as it was, or give the new state another name.",
            )  # fmt: skip
        map_key = None if meta.map_key is None else self._reader(meta.map_key, map_key_type, meta.name)
        value = self._reader(meta.value, value_type, meta.name)
        return StateForm(meta.name, kind, value, map_key, meta.ttl)

    def _reader(
        self, config: SerializerConfig, type_info: TypeInformation | None, name: str
    ) -> ValueSerializer:
        return restored_serializer(config, type_info, self._operator, name, trusted=self._trusted)

    def _runs(
        self, stored: list[_StoredState], forms: list[StateForm], ttl: bool, access_time_ms: int
    ) -> Iterator[RestoredRun]:
        for state, form in zip(stored, forms, strict=True):
            for run in state.runs:
                try:
                    keys, values = decoded_run(form, run)
                except SnapshotFormatError as error:
                    raise SnapshotFormatError(f"operator '{self._operator}': {error}") from error
                if form.ttl and not ttl:
                    values = _each(form.kind, values, _without_time)
                elif ttl and not form.ttl:
                    values = _each(form.kind, values, lambda value: (access_time_ms, value))
                yield RestoredRun(run.key_group, keys, values)


def _without_time(pair: tuple[int, Any]) -> Any:
    return pair[1]


def _each(kind: StateKind, values: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """The values with each value, element or map value changed."""
    if kind is StateKind.LIST:
        return [[change(item) for item in value] for value in values]
    if kind is StateKind.MAP:
        return [{key: change(item) for key, item in value.items()} for value in values]
    return [change(value) for value in values]
