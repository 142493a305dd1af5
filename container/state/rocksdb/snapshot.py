"""Snapshots of a database: files of a linked copy are uploaded, or its entries are written in canonical form.

Owner: the snapshot thread in `write`; any thread in `discard`. It never reads the live database, which may be
closed meanwhile. The cut decided to which existing files it may refer instead of uploading them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from rocksdict import Options

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.heap_sections import FrozenSection
from yarrow.container.state.rocksdb.canonical import StoredForm, runs_of_section, runs_of_state
from yarrow.container.state.rocksdb.database import open_read_only
from yarrow.container.state.rocksdb.errors import RocksDBError
from yarrow.container.state.rocksdb.folders import DatabaseFolder
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.errors import writing_states
from yarrow.runtime.snapshot.handles import (
    DatabaseFile,
    FileStateHandle,
    KeyedStateHandle,
    KeyGroupsSnapshot,
    RocksDBSnapshot,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_group_form import EncodedRun, Run, StateForm, write_key_groups
from yarrow.runtime.snapshot.key_types import KeyEvidence
from yarrow.runtime.snapshot.output import SnapshotOutput

#: Suffix of files that never change once they are written; the others are small and belong to one checkpoint.
_SHARED_SUFFIX: Final = ".sst"
_LOG_SUFFIX: Final = ".log"


class LinkedDatabase:
    """The database at a cut: a folder of hard links that is complete when `ready` is done."""

    def __init__(self, path: str, ready: Future[None], folder: DatabaseFolder, options: Options) -> None:
        self.path = path
        self.ready = ready
        self.options = options
        self._folder = folder
        self._guard = threading.Lock()
        self._released = False
        folder.acquire()

    def release(self) -> None:
        """Removes the links once the helper thread has made them; may be repeated. Any thread."""
        with self._guard:
            if self._released:
                return
            self._released = True
        self.ready.add_done_callback(self._remove)

    def _remove(self, _: Future[None]) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._folder.release()


@dataclass(frozen=True, slots=True)
class SnapshotScope:
    """The common facts of all snapshots of a backend."""

    operator_name: str
    key_groups: KeyGroupRange
    max_parallelism: int
    backend_id: str
    #: Declared type of the keys; None = not declared.
    key_type: TypeInformation | None = None
    #: The columns whose tuples the keys are; empty = not known.
    key_columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CanonicalRemainder:
    """State beside the database in canonical form: timers, arrays, states without a user in this program."""

    sections: Sequence[tuple[StateForm, FrozenSection]]
    #: Numbered behind the states of the database, if those are canonical too, and the sections.
    carried: tuple[list[StateMetaInfo], list[EncodedRun]]

    def write(
        self,
        scope: SnapshotScope,
        output: SnapshotOutput,
        forms: Sequence[StateForm] = (),
        runs: Iterable[Run] = (),
    ) -> tuple[KeyedStateHandle, ...]:
        """One handle, or none without content; `runs` of `forms` come first."""
        metas, carried = self.carried
        all_forms = [*forms, *(form for form, _ in self.sections)]

        def all_runs() -> Iterator[Run]:
            yield from runs
            for number, (form, section) in enumerate(self.sections, len(forms)):
                yield from runs_of_section(form, number, section, scope.max_parallelism)

        evidence = KeyEvidence(scope.key_type, scope.key_columns)
        remaining = evidence.of_runs(all_runs())
        first = next(remaining, None)
        if first is None and not carried:
            return ()
        begun = () if first is None else (first,)
        with writing_states([*(form.name for form in all_forms), *(meta.name for meta in metas)]):
            carried_on = evidence.of_encoded(carried)
            handle = output.write(write_key_groups(all_forms, chain(begun, remaining), carried_on))
        return (
            KeyGroupsSnapshot(
                key_groups=(scope.key_groups.start, scope.key_groups.end),
                # After the values were written: only then is it known which were pickled.
                states=(*(form.meta() for form in all_forms), *metas),
                handle=handle,
                key_type=evidence.spec(),
                key_columns=evidence.columns(),
            ),
        )


class NativeSnapshot:
    """Uploads those files of a database that no completed checkpoint holds."""

    def __init__(
        self,
        scope: SnapshotScope,
        linked: LinkedDatabase,
        states: tuple[StateMetaInfo, ...],
        evidence: KeyEvidence,
        rest: CanonicalRemainder,
        reusable: Mapping[str, FileStateHandle] | None,
        uploaded: Callable[[Mapping[str, FileStateHandle]], None],
    ) -> None:
        self._scope = scope
        self._linked = linked
        self._states = states
        self._evidence = evidence
        self._rest = rest
        #: Files of the last completed checkpoint; None = checkpoints share no files.
        self._reusable = reusable
        self._uploaded = uploaded

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """See PendingKeyedSnapshot."""
        try:
            self._linked.ready.result()
            shared: list[DatabaseFile] = []
            private: list[DatabaseFile] = []
            with writing_states([state.name for state in self._states]):
                for path in sorted(Path(self._linked.path).iterdir()):
                    if path.suffix == _LOG_SUFFIX and not path.stat().st_size:
                        continue  # the write-ahead log is not used
                    if path.suffix == _SHARED_SUFFIX and self._reusable is not None:
                        handle = self._reusable.get(path.name) or output.write_shared_file(str(path))
                        shared.append(DatabaseFile(name=path.name, handle=handle))
                    else:
                        private.append(DatabaseFile(name=path.name, handle=output.write_own_file(str(path))))
            rest = self._rest.write(self._scope, output)
        finally:
            self._linked.release()
        # Also if it shares nothing: files that earlier checkpoints shared are deleted when it replaces them.
        self._uploaded({f.name: f.handle for f in shared if isinstance(f.handle, FileStateHandle)})
        native = RocksDBSnapshot(
            key_groups=(self._scope.key_groups.start, self._scope.key_groups.end),
            backend_id=self._scope.backend_id,
            states=self._states,
            shared=tuple(shared),
            private=tuple(private),
            key_type=self._evidence.spec(),
            key_columns=self._evidence.columns(),
        )
        return (native, *rest)

    def discard(self) -> None:
        """See PendingKeyedSnapshot."""
        self._linked.release()


class CanonicalSnapshot:
    """Writes the entries of a database in the canonical form."""

    def __init__(
        self,
        scope: SnapshotScope,
        linked: LinkedDatabase | None,
        states: Sequence[StoredForm],
        rest: CanonicalRemainder,
    ) -> None:
        self._scope = scope
        self._linked = linked
        self._states = states
        self._rest = rest

    def write(self, output: SnapshotOutput) -> tuple[KeyedStateHandle, ...]:
        """See PendingKeyedSnapshot."""
        linked = self._linked
        if linked is None:
            return self._rest.write(self._scope, output)
        try:
            linked.ready.result()
            try:
                database, entries = open_read_only(linked.path, linked.options)
            except Exception as error:
                raise RocksDBError(
                    self._scope.operator_name, None, linked.path, "open the linked database", error
                ) from error
            try:

                def runs() -> Iterator[Run]:
                    for number, stored in enumerate(self._states):
                        family = entries[stored.form.name]
                        yield from runs_of_state(number, stored, family, self._scope.key_groups)

                forms = [stored.form for stored in self._states]
                return self._rest.write(self._scope, output, forms, runs())
            finally:
                for family in entries.values():
                    family.close()
                database.close()
        finally:
            linked.release()

    def discard(self) -> None:
        """See PendingKeyedSnapshot."""
        if self._linked is not None:
            self._linked.release()
