"""Keyed state of a savepoint or checkpoint at hand on this machine, in the canonical form whatever backend wrote it.

Files are copied into a temporary folder, verified on the way and mapped into memory. Native checkpoints of RocksDB are
opened read-only and rewritten as canonical files. So memory holds a run at a time, not a state. Owner: the calling
thread. It must not know tables.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.config.options.security import SNAPSHOT_SECRET_FILE
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.snapshot.errors import CorruptSnapshotError, SnapshotFormatError, UntrustedPickleError
from yarrow.runtime.snapshot.handles import (
    DatabaseFile,
    InlineStateHandle,
    KeyedStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorStateHandle,
    RocksDBSnapshot,
    StateHandle,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_group_form import (
    EncodedRun,
    Run,
    StateForm,
    decoded_run,
    encoded_runs,
    write_key_groups,
)
from yarrow.runtime.snapshot.key_types import KeyEvidence, key_type_of
from yarrow.runtime.snapshot.opening import OpenedSnapshot
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.value_serializers import holds_pickles, stored_serializer


@dataclass(frozen=True, slots=True)
class CanonicalPart:
    """The keyed state of one handle."""

    key_groups: tuple[int, int]
    states: tuple[StateMetaInfo, ...]
    data: bytes | memoryview
    #: As in the handle.
    key_type: TypeSpec | msgspec.UnsetType = msgspec.UNSET
    key_columns: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET

    def runs(self, key_groups: KeyGroupRange | None = None) -> Iterator[EncodedRun]:
        """The runs of these key groups, all without."""
        return encoded_runs(self.data, key_groups or KeyGroupRange(*self.key_groups))


def form_of(meta: StateMetaInfo, operator: str, *, trusted: bool) -> StateForm:
    """Reads and writes a state exactly as `meta` describes it. Raises UntrustedPickleError, StateMigrationError."""
    if not trusted:
        refuse_pickles(meta, operator)
    map_key_form = meta.map_key_form
    map_key = (
        None
        if map_key_form is None
        else stored_serializer(map_key_form, operator, meta.name, trusted=trusted)
    )
    value = stored_serializer(meta.value, operator, meta.name, trusted=trusted)
    return StateForm(meta.name, meta.kind, value, map_key, meta.ttl)


def refuse_pickles(meta: StateMetaInfo, operator: str) -> None:
    """Raises UntrustedPickleError naming the state, where the metadata say that values of it are pickled."""
    configs = [config for config in (meta.value, meta.map_key) if config is not None]
    if any(holds_pickles(config) for config in configs):
        types = ", ".join(sorted({name for config in configs for name in config.pickled}))
        raise UntrustedPickleError(
            f"operator '{operator}', state '{meta.name}': its values are pickled"
            f"{f' ({types})' if types else ''}, and reading them runs code that is in the file. Give the"
            f" configuration with the {SNAPSHOT_SECRET_FILE.key} that sealed it, or trust_pickle=True where"
            " the snapshot is your own."
        )


def refuse_pickles_of(operator: OperatorState) -> None:
    """Do the same for all keyed states of an operator; its operator states are refused when they are read."""
    for _, subtask in sorted(operator.subtasks.items()):
        for keyed in subtask.keyed:
            for meta in keyed.states:
                refuse_pickles(meta, operator.name)


class LocalCopies:
    """Verified copies of a snapshot's files in a temporary folder; `close` removes them."""

    def __init__(self, directory: str, working_directory: str | None = None) -> None:
        """`directory` holds the metadata; copies go below `working_directory`, else below the system's own folder."""
        self._directory = directory
        self.reader = SnapshotReader(directory)
        self._folder = tempfile.mkdtemp(prefix="yarrow-state-", dir=working_directory)
        self._maps: list[mmap.mmap] = []
        self._copies = 0

    def new_path(self) -> str:
        """A path at which nothing is."""
        self._copies += 1
        return os.path.join(self._folder, str(self._copies))

    def data(self, handle: StateHandle, owner: str) -> bytes | memoryview:
        """The bytes of a handle, mapped where they are in a file. `owner` is for errors."""
        if isinstance(handle, InlineStateHandle):
            return handle.data
        path = self.new_path()
        self.reader.copy(handle, path, owner)
        return self.mapped(path)

    def mapped(self, path: str) -> memoryview:
        """The bytes of a file."""
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._maps.append(mapped)
        return memoryview(mapped)

    def database(self, snapshot: RocksDBSnapshot, owner: str) -> str:
        """A new folder with the files of a database. Raises CorruptSnapshotError for names outside of it."""
        folder = self.new_path()
        os.makedirs(folder)
        for file in (*snapshot.shared, *snapshot.private):
            self._check_name(file)
            self.reader.copy(file.handle, os.path.join(folder, file.name), owner)
        return folder

    def _check_name(self, file: DatabaseFile) -> None:
        if Path(file.name).name != file.name:
            raise CorruptSnapshotError(
                self._directory, f"its metadata name a database file outside of its folder: {file.name!r}"
            )

    def close(self) -> None:
        """Removes the copies."""
        for mapped in self._maps:
            # A map ends with the last holder of one of its runs.
            with contextlib.suppress(BufferError):
                mapped.close()
        self._maps.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


class StoredState:
    """The pieces of one savepoint or checkpoint; `close` removes what was copied."""

    def __init__(self, opened: OpenedSnapshot, working_directory: str | None, *, trusted: bool) -> None:
        """`working_directory`: where copies go for the time being; the system's own without it."""
        self.opened = opened
        self.trusted = trusted
        self._copies = LocalCopies(opened.directory, working_directory)
        self._parts: dict[int, tuple[KeyedStateHandle, CanonicalPart]] = {}

    def read(self, handle: StateHandle, operator: OperatorState) -> bytes:
        """The verified bytes of a handle."""
        return self._copies.reader.read(handle, _owner(operator))

    def reader_of(self, operator: OperatorState) -> Callable[[StateHandle], bytes]:
        """`read` for the pieces of one operator."""
        return self._copies.reader.of(_owner(operator))

    def keyed_parts(self, operator: OperatorState) -> list[CanonicalPart]:
        """All keyed state of an operator."""
        return [
            self.part(operator, handle)
            for _, subtask in sorted(operator.subtasks.items())
            for handle in subtask.keyed
        ]

    def operator_parts(self, operator: OperatorState) -> list[tuple[int, OperatorStateHandle]]:
        """All operator state of an operator, with its subtask."""
        return [
            (index, handle)
            for index, subtask in sorted(operator.subtasks.items())
            for handle in subtask.operator
        ]

    def part(self, operator: OperatorState, handle: KeyedStateHandle) -> CanonicalPart:
        """The keyed state of one handle, copied and mapped once."""
        known = self._parts.get(id(handle))
        if known is None:
            made = (
                self._canonical(operator, handle)
                if isinstance(handle, KeyGroupsSnapshot)
                else self._converted(operator, handle)
            )
            known = self._parts[id(handle)] = (handle, made)
        return known[1]

    def _canonical(self, operator: OperatorState, snapshot: KeyGroupsSnapshot) -> CanonicalPart:
        return _part(snapshot, snapshot.states, self._copies.data(snapshot.handle, _owner(operator)))

    def _converted(self, operator: OperatorState, snapshot: RocksDBSnapshot) -> CanonicalPart:
        """A native checkpoint as a canonical file."""
        copies, trusted = self._copies, self.trusted
        folder = copies.database(snapshot, _owner(operator))
        if not trusted:
            for meta in snapshot.states:
                refuse_pickles(meta, operator.name)
        target = copies.new_path()
        forms = [form_of(meta, operator.name, trusted=trusted) for meta in snapshot.states]
        runs = runs_of_database(snapshot, folder, dict(enumerate(forms)))
        with open(target, "xb") as file:
            file.writelines(write_key_groups(forms, runs))
        shutil.rmtree(folder, ignore_errors=True)
        states = tuple(form.meta() for form in forms)
        return _part(snapshot, states, copies.mapped(target))

    def close(self) -> None:
        """Removes the copies."""
        self._parts.clear()
        self._copies.close()


def _owner(operator: OperatorState) -> str:
    return f"operator '{operator.name}'"


def runs_of_database(
    snapshot: RocksDBSnapshot,
    folder: str,
    forms: Mapping[int, StateForm],
    key_groups: KeyGroupRange | None = None,
) -> Iterator[Run]:
    """The entries of a downloaded database, state by state.

    `forms` are those of the states to read, by their number. Without `key_groups` all of the snapshot's are read.
    """
    # Imported here alone: a process that reads canonical state needs no RocksDB.
    from rocksdict import Options

    from yarrow.container.state.rocksdb.canonical import StoredForm, runs_of_state
    from yarrow.container.state.rocksdb.database import open_read_only
    from yarrow.container.state.rocksdb.migration import type_of
    from yarrow.container.state.rocksdb.values import StateValues

    groups = key_groups or KeyGroupRange(*snapshot.key_groups)
    database, families = open_read_only(folder, Options(raw_mode=True))
    try:
        for number, form in forms.items():
            meta = snapshot.states[number]
            values = StateValues(form.value, type_of(meta.value), meta.ttl)
            if meta.name in families:
                stored = StoredForm(form, values, by_window=meta.is_by_window)
                yield from runs_of_state(number, stored, families[meta.name], groups)
    finally:
        for family in families.values():
            family.close()
        database.close()


def decoded(form: StateForm, run: EncodedRun, operator: str) -> tuple[list[Any], list[Any]]:
    """Keys and values of a run. Raises SnapshotFormatError naming the operator."""
    try:
        return decoded_run(form, run)
    except SnapshotFormatError as error:
        raise SnapshotFormatError(f"operator '{operator}': {error}") from error


def _part(
    snapshot: KeyedStateHandle, states: tuple[StateMetaInfo, ...], data: bytes | memoryview
) -> CanonicalPart:
    return CanonicalPart(snapshot.key_groups, states, data, snapshot.key_type, snapshot.key_columns)


def kept_evidence(
    key_type: TypeInformation | None, parts: Sequence[CanonicalPart], names: Collection[str]
) -> KeyEvidence:
    """Return the evidence for keys that a function made from keys of these states; a `key_type` means other keys."""
    if key_type is not None:
        return KeyEvidence(key_type)
    found = {part.key_columns for part in parts if any(meta.name in names for meta in part.states)}
    columns = found.pop() if len(found) == 1 else msgspec.UNSET
    return KeyEvidence(stored_key_type(parts, names), () if columns is msgspec.UNSET else columns)


def stored_key_type(parts: Sequence[CanonicalPart], names: Collection[str] = ()) -> TypeInformation | None:
    """Return the type of the keys of these states, of all states without any; None if parts differ or do not say."""
    found = {
        key_type_of(part.key_type)
        for part in parts
        if part.states and (not names or any(meta.name in names for meta in part.states))
    }
    return found.pop() if len(found) == 1 else None
