"""A state backend as a user may write one: values pickled in a dict, three handles, snapshots in the canonical form."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import KeyedBackendContext
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.heap_sections import FrozenSection, HeapSections
from yarrow.container.state.heap_snapshot import state_form
from yarrow.container.state.registering_backend import RegisteringBackend
from yarrow.container.state.state_registration import StateRegistration
from yarrow.container.state.value_table import ValueTable
from yarrow.datastream.state import ListState, MapState, ValueState
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.data.map_keys import map_key, shown_map_key
from yarrow.runtime.snapshot.handles import KeyedStateHandle, KeyGroupsSnapshot
from yarrow.runtime.snapshot.key_group_form import Run, StateForm, divided_runs, write_key_groups
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState

Content = dict[Any, bytes]


class OwnBackend(RegisteringBackend):
    """Keyed state of one operator's subtask."""

    def __init__(self, context: KeyedBackendContext) -> None:
        restored = RestoredKeyedState(
            context.restored, context.key_groups, context.read, context.operator_name, trusted=context.trusted
        )
        super().__init__(context, restored, HeapSections(context, restored))
        self._contents: dict[str, Content] = {}

    def _content(self, state: StateRegistration) -> Content:
        content = self._contents[state.name] = {}
        for run in self.restored_runs(state):
            content.update(
                (key, pickle.dumps(value)) for key, value in zip(run.keys, run.values, strict=True)
            )
        return content

    def open_value(self, state: StateRegistration) -> ValueState[Any]:
        return OwnValue(self, state, self._content(state))

    def open_list(self, state: StateRegistration) -> ListState[Any]:
        return OwnList(self, state, self._content(state))

    def open_map(self, state: StateRegistration) -> MapState[Any, Any]:
        return OwnMap(self, state, self._content(state))

    def value_table(self, name: str, value_type: TypeInformation | None) -> ValueTable:
        raise UnsupportedFeatureError(f"state '{name}': this backend serves process functions, not reduce")

    def state_keys(self, name: str) -> Iterable[Any]:
        return list(self._contents.get(name, ()))

    def snapshot(self, checkpoint_id: int, options: CheckpointOptions) -> OwnSnapshot:
        tables = [(self.registrations[name], dict(content)) for name, content in self._contents.items()]
        return OwnSnapshot(self.context, tables, self._sections.freeze())

    @property
    def entries(self) -> int:
        return sum(map(len, self._contents.values()))

    def dispose(self) -> None:
        self._contents.clear()


class OwnSnapshot:
    """What was there at the cut."""

    def __init__(
        self,
        context: KeyedBackendContext,
        tables: list[tuple[StateRegistration, Content]],
        sections: list[FrozenSection],
    ) -> None:
        self._context, self._tables, self._sections = context, tables, sections

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        states = [state for state, _ in self._tables] + [section.registration for section in self._sections]
        forms = [state_form(state, self._context.operator_name) for state in states]
        runs = list(self._runs(forms))
        if not runs:
            return ()
        handle = output.write(write_key_groups(forms, runs))
        groups = self._context.key_groups
        metas = tuple(form.meta() for form in forms)
        return (KeyGroupsSnapshot(key_groups=(groups.start, groups.end), states=metas, handle=handle),)

    def _runs(self, forms: list[StateForm]) -> Iterator[Run]:
        pieces: list[Any] = [
            [(list(content), list(map(pickle.loads, content.values())))] for _, content in self._tables
        ]
        pieces += [section.pieces for section in self._sections]
        for number, parts in enumerate(pieces):
            for keys, values in parts:
                yield from divided_runs(forms[number], number, keys, values, self._context.max_parallelism)

    def discard(self) -> None:
        """Nothing is held."""


class OwnState:
    """What the handles have in common."""

    def __init__(self, backend: OwnBackend, state: StateRegistration, content: Content) -> None:
        self._backend, self._state, self._content = backend, state, content

    def _read(self, absent: Any) -> Any:
        found = self._content.get(canonicalize(self._backend.require_key(self._state.name)))
        return absent if found is None else pickle.loads(found)

    def _write(self, value: Any) -> None:
        self._content[canonicalize(self._backend.require_key(self._state.name))] = pickle.dumps(value)

    def clear(self) -> None:
        self._content.pop(canonicalize(self._backend.require_key(self._state.name)), None)


class OwnValue(OwnState, ValueState[Any]):
    def value(self) -> Any:
        return self._read(None)

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(value)


class OwnList(OwnState, ListState[Any]):
    def get(self) -> list[Any]:
        found: list[Any] = self._read([])
        return found

    def add(self, value: Any) -> None:
        self.add_all([value])

    def add_all(self, values: list[Any]) -> None:
        self.update([*self.get(), *values])

    def update(self, values: list[Any]) -> None:
        if any(value is None for value in values):
            raise refuse_none(self._backend.context.operator_name, self._state.name)
        if values:
            self._write(list(values))
        else:
            self.clear()


class OwnMap(OwnState, MapState[Any, Any]):
    def _map(self) -> dict[Any, Any]:
        found: dict[Any, Any] = self._read({})
        return found

    def get(self, key: Any) -> Any:
        return self._map().get(map_key(key))

    def contains(self, key: Any) -> bool:
        return map_key(key) in self._map()

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        self._write(self._map() | {map_key(key): value for key, value in dict_value.items()})

    def remove(self, key: Any) -> None:
        kept = {known: value for known, value in self._map().items() if known != map_key(key)}
        if kept:
            self._write(kept)
        else:
            self.clear()

    def items(self) -> list[tuple[Any, Any]]:
        return [(shown_map_key(key), value) for key, value in self._map().items()]

    def keys(self) -> list[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        return list(self._map().values())

    def is_empty(self) -> bool:
        return not self._map()
