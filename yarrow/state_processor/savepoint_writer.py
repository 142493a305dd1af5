"""SavepointWriter: new savepoints, of nothing, or of an existing one with operators added, removed or changed.

Owner: the calling thread. Calls gather changes; `write` carries them out. The existing savepoint is only read,
and the new one holds no reference to its files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.state import StateDescriptor
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, OperatorID, RandomIdFactory
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.key_groups import check_parallelism
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorSubtaskState,
    StateKind,
    StateMetaInfo,
)
from yarrow.runtime.snapshot.key_group_form import EncodedRun, write_key_groups
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.writing.savepoint_folder import SavepointFolder
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.new_folder import new_folder
from yarrow.state_processor.operator_identifier import OperatorIdentifier, find_operator
from yarrow.state_processor.operator_tables import OperatorStates
from yarrow.state_processor.pickle_trust import PickleTrust
from yarrow.state_processor.stored_state import CanonicalPart, StoredState
from yarrow.state_processor.transformations import NewOperator, StateBootstrapTransformation
from yarrow.state_processor.transformed_operator_state import TransformedOperatorState
from yarrow.state_processor.transformed_state import TransformedState
from yarrow.state_processor.transformed_timers import TransformedTimers

DEFAULT_MAX_PARALLELISM: Final = 128


@dataclass(slots=True)
class _New:
    """An operator that is added."""

    identifier: OperatorIdentifier
    name: str
    max_parallelism: int
    transformations: tuple[StateBootstrapTransformation, ...]


@dataclass(slots=True)
class _Kept:
    """An operator of the existing savepoint."""

    state: OperatorState
    #: By the name of the state.
    transformed: dict[str, TransformedState] = field(default_factory=dict)
    of_operator: dict[str, TransformedOperatorState] = field(default_factory=dict)
    timers: TransformedTimers | None = None

    @property
    def renames_a_state(self) -> bool:
        """True if a state gets another name."""
        made = [(each.name, each.descriptor) for each in self.transformed.values()]
        made += [(each.name, each.descriptor) for each in self.of_operator.values()]
        return any(descriptor is not None and descriptor.get_name() != name for name, descriptor in made)


class SavepointWriter:
    """A description of the new savepoint; every method but `write` returns the writer itself."""

    def __init__(
        self,
        max_parallelism: int,
        existing: CheckpointMetadata | None,
        path: str,
        trusted: bool,
        configuration: Mapping[str, str],
        trust: PickleTrust,
    ) -> None:
        self._trust = trust
        self._max_parallelism = max_parallelism
        self._existing = existing
        self._path = path
        self._trusted = trusted
        self._configuration = configuration
        self._kept = [_Kept(state) for state in existing.operators] if existing is not None else []
        self._new: list[_New] = []

    @staticmethod
    def new_savepoint(
        max_parallelism: int = DEFAULT_MAX_PARALLELISM, *, configuration: Mapping[str, str] | None = None
    ) -> SavepointWriter:
        """A savepoint of new operators alone, to begin a job from.

        `max_parallelism`: a job that restores takes it over, or must have the same. `configuration`: of the operators
        that bootstrap functions run in, for instance `state.backend.type: rocksdb` for more state than fits in memory.
        With `security.snapshot.secret-file` the savepoint is sealed for jobs of that secret.
        Raises InvalidParallelismError, SnapshotStorageError for a secret that cannot be used.
        """
        check_parallelism(1, max_parallelism)
        return SavepointWriter(
            max_parallelism, None, "", True, configuration or {}, PickleTrust.of(configuration)
        )

    @staticmethod
    def from_existing_savepoint(
        path: str, *, trust_pickle: bool = False, configuration: Mapping[str, str] | None = None
    ) -> SavepointWriter:
        """A savepoint or retained checkpoint to change. It is not touched; pickled values are carried over unread.

        `configuration` as in `new_savepoint`: with a secret, what it sealed needs no `trust_pickle`, and pickles it
        did not seal are refused without.
        Raises SnapshotError naming the path.
        """
        trust = PickleTrust.of(configuration)
        opened, trusted = trust.open(path, trust_pickle)
        known = [state.max_parallelism for state in opened.metadata.operators]
        return SavepointWriter(
            max(known, default=DEFAULT_MAX_PARALLELISM),
            opened.metadata,
            path,
            trusted,
            configuration or {},
            trust,
        )

    # ------------------------------------------------------------------ changes

    def with_operator(
        self,
        operator: OperatorIdentifier | str,
        *transformations: StateBootstrapTransformation,
        max_parallelism: int | None = None,
        name: str | None = None,
    ) -> SavepointWriter:
        """Adds an operator with the states of these transformations, each of which makes other states.

        Raises StateProcessorError where the operator is there already.
        """
        identifier = OperatorIdentifier.of(operator)
        self._refuse_taken(identifier.operator_id, str(identifier))
        if not transformations:
            raise StateProcessorError(f"operator with {identifier}: name at least one transformation")
        maximum = max_parallelism or self._max_parallelism
        check_parallelism(1, maximum)
        known_as = name or identifier.uid or identifier.operator_id
        self._new.append(_New(identifier, known_as, maximum, transformations))
        return self

    def remove_operator(self, operator: OperatorIdentifier | str) -> SavepointWriter:
        """Leaves an operator out. Raises StateProcessorError where it is not there."""
        wanted = OperatorIdentifier.of(operator).operator_id
        new = [each for each in self._new if each.identifier.operator_id == wanted]
        if new:
            self._new.remove(new[0])
        else:
            self._kept.remove(self._find(operator))
        return self

    def change_operator_identifier(
        self, operator: OperatorIdentifier | str, new: OperatorIdentifier | str
    ) -> SavepointWriter:
        """Give an operator's state another uid, by which a job restores it. Raises StateProcessorError."""
        kept, identifier = self._find(operator), OperatorIdentifier.of(new)
        if kept.state.operator_id != identifier.operator_id:
            self._refuse_taken(identifier.operator_id, str(identifier))
        kept.state = msgspec.structs.replace(
            kept.state, operator_id=identifier.operator_id, uid=identifier.uid
        )
        return self

    def transform_state(
        self,
        operator: OperatorIdentifier | str,
        state: str,
        function: Callable[[pa.Table], pa.Table],
        descriptor: StateDescriptor | None = None,
        *,
        key_type: TypeInformation | None = None,
    ) -> SavepointWriter:
        """Replace a state by the result of a function on its table.

        The table of a keyed state is that of read_keyed_state. The table of an operator state is that of
        read_list_state, read_union_state or read_broadcast_state.

        Rows that are left out lose the state of their key, or are no elements any more. With a descriptor the state
        gets its name, kind and type; without, the columns must keep their types. Other states stay as they are.
        Where the function makes keys of another type, or puts their columns into another order, `key_type` is what the
        job declares of them. All keyed states of an operator and its timers have the same keys.
        """
        kept = self._find(operator)
        if state in _operator_state_names(kept.state) - _keyed_state_names(kept.state):
            kept.of_operator[state] = TransformedOperatorState(state, function, descriptor)
        else:
            kept.transformed[state] = TransformedState(state, function, descriptor, declared(key_type))
        return self

    def transform_timers(
        self,
        operator: OperatorIdentifier | str,
        function: Callable[[pa.Table], pa.Table],
        *,
        key_type: TypeInformation | None = None,
    ) -> SavepointWriter:
        """Replace the timers of an operator by the result of a function on the table of read_timers.

        Rows that are left out are timers that do not fire; rows may be added. `key_type` as in transform_state.
        """
        self._find(operator).timers = TransformedTimers(function, declared(key_type))
        return self

    def _find(self, operator: OperatorIdentifier | str) -> _Kept:
        state = find_operator(
            [kept.state for kept in self._kept], operator, self._path or "the new savepoint"
        )
        return next(kept for kept in self._kept if kept.state is state)

    def _refuse_taken(self, operator_id: OperatorID, shown: str) -> None:
        taken = {kept.state.operator_id for kept in self._kept}
        taken |= {new.identifier.operator_id for new in self._new}
        if operator_id in taken:
            raise StateProcessorError(
                f"there is an operator with {shown} already: call remove_operator first, or transform_state to change "
                "a state of it"
            )

    # ------------------------------------------------------------------ writing

    def write(self, path: str) -> str:
        """Writes the savepoint into a folder that holds none, and gives the folder, to be given to `yarrow run -s`.

        Raises StateProcessorError, SnapshotError, FragmentFailedError; nothing is left then.
        """
        if not self._kept and not self._new:
            raise StateProcessorError(f"{path}: a savepoint without operators; call with_operator")
        job_id = JobID(RandomIdFactory().hex_id()) if self._existing is None else self._existing.job_id
        with new_folder(path) as folder:
            operators = (*self._write_kept(folder.output), *self._write_new(folder, job_id))
            return folder.complete(self._metadata(job_id, operators), self._trust.secret)

    def _metadata(self, job_id: JobID, operators: tuple[OperatorState, ...]) -> CheckpointMetadata:
        from yarrow import __version__

        existing = self._existing
        return CheckpointMetadata(
            engine_version=__version__,
            job_id=job_id,
            job_name="state processor" if existing is None else existing.job_name,
            checkpoint_id=1 if existing is None else existing.checkpoint_id,
            timestamp_ms=SystemClock().epoch_ms(),
            kind=SnapshotKind.SAVEPOINT,
            operators=operators,
        )

    def _write_new(self, folder: SavepointFolder, job_id: JobID) -> Iterator[OperatorState]:
        for new in self._new:
            operator = NewOperator(
                operator_id=new.identifier.operator_id,
                name=new.name,
                max_parallelism=new.max_parallelism,
                job_id=job_id,
                output=folder.output,
                foreign_files=folder.foreign_files,
                configuration=self._configuration,
            )
            written = [transformation.write(operator) for transformation in new.transformations]
            _refuse_twice(new.name, written)
            state = OperatorSubtaskState(
                keyed=tuple(handle for each in written for handle in each.keyed),
                operator=tuple(handle for each in written for handle in each.operator),
            )
            yield OperatorState(
                operator_id=new.identifier.operator_id,
                name=new.name,
                uid=new.identifier.uid,
                parallelism=1,
                max_parallelism=new.max_parallelism,
                subtasks={} if state.is_empty else {0: state},
            )

    def _write_kept(self, output: SnapshotOutput) -> Iterator[OperatorState]:
        if not self._kept:
            return
        stored = StoredState(open_snapshot(self._path), None, trusted=self._trusted)
        try:
            for kept in self._kept:
                yield _Copying(stored, kept.state, output).copied(kept)
        finally:
            stored.close()


def _operator_state_names(state: OperatorState) -> set[str]:
    handles = (handle for subtask in state.subtasks.values() for handle in subtask.operator)
    return {named.name for handle in handles for named in handle.states}


def _keyed_states(state: OperatorState) -> Iterator[StateMetaInfo]:
    return (meta for subtask in state.subtasks.values() for handle in subtask.keyed for meta in handle.states)


def _keyed_state_names(state: OperatorState) -> set[str]:
    return {meta.name for meta in _keyed_states(state)}


def _timer_names(state: OperatorState) -> set[str]:
    return {meta.name for meta in _keyed_states(state) if meta.kind is StateKind.TIMERS}


def _refuse_twice(operator: str, written: list[OperatorSubtaskState]) -> None:
    seen: set[str] = set()
    for state in written:
        names = [meta.name for handle in state.keyed for meta in handle.states]
        names += [named.name for handle in state.operator for named in handle.states]
        for name in names:
            if name in seen:
                raise StateProcessorError(
                    f"operator '{operator}': two transformations make the state '{name}'; give each state one"
                )
        seen.update(names)


@dataclass(frozen=True, slots=True)
class _Copying:
    """Brings one operator of an existing savepoint into the new one."""

    stored: StoredState
    state: OperatorState
    output: SnapshotOutput

    def copied(self, kept: _Kept) -> OperatorState:
        """The operator with handles of the new savepoint."""
        state = self.state
        self._refuse_records_in_flight()
        without = {*kept.transformed, *(_timer_names(state) if kept.timers is not None else ())}
        subtasks = {
            index: self._subtask(subtask, without, kept.of_operator.keys())
            for index, subtask in state.subtasks.items()
        }
        if made := tuple(self._keyed(kept)):
            first = subtasks.get(0, OperatorSubtaskState())
            subtasks[0] = msgspec.structs.replace(first, keyed=(*first.keyed, *made))
        for each in kept.of_operator.values():
            for index, handle in each.write(state, self._operator_states(), self.output):
                known = subtasks.get(index, OperatorSubtaskState())
                subtasks[index] = msgspec.structs.replace(known, operator=(*known.operator, handle))
        read = self.stored.reader_of(state)
        coordinator = None if state.coordinator is None else self.output.write([read(state.coordinator)])
        return msgspec.structs.replace(
            state,
            subtasks={index: each for index, each in subtasks.items() if not each.is_empty},
            coordinator=coordinator,
            # Then the state may be for an operator of another kind, and names alone tell which.
            kind=msgspec.UNSET if kept.renames_a_state else state.kind,
        )

    def _keyed(self, kept: _Kept) -> Iterator[KeyGroupsSnapshot]:
        """Return the new handles of keyed states and timers."""
        parts, trusted = self.stored.keyed_parts(self.state), self.stored.trusted
        for each in kept.transformed.values():
            yield each.write(self.state, parts, self.output, trusted=trusted)
        if kept.timers is not None:
            yield from kept.timers.write(self.state, parts, self.output, trusted=trusted)

    def _refuse_records_in_flight(self) -> None:
        if any(subtask.channels for subtask in self.state.subtasks.values()):
            raise StateProcessorError(
                f"operator '{self.state.name}': the unaligned checkpoint holds records in flight, which belong to its "
                "job's edges; take a savepoint of the job and change that"
            )

    def _operator_states(self) -> OperatorStates:
        stored, state = self.stored, self.state
        return OperatorStates(
            state.name, stored.operator_parts(state), stored.reader_of(state), stored.trusted
        )

    def _subtask(
        self, subtask: OperatorSubtaskState, without: Collection[str], without_of_operator: Collection[str]
    ) -> OperatorSubtaskState:
        read = self.stored.reader_of(self.state)
        keyed = []
        for handle in subtask.keyed:
            part = self.stored.part(self.state, handle)
            copied = _copied_part(part, set(without), self.output)
            if copied is not None:
                keyed.append(copied)
        operator = []
        for own in subtask.operator:
            left = tuple(named for named in own.states if named.name not in without_of_operator)
            if left:
                copy = self.output.write([read(own.handle)])
                operator.append(msgspec.structs.replace(own, handle=copy, states=left))
        return OperatorSubtaskState(keyed=tuple(keyed), operator=tuple(operator))


def _copied_part(part: CanonicalPart, without: set[str], output: SnapshotOutput) -> KeyGroupsSnapshot | None:
    """Return the part without some states, not decoded; None if nothing is left."""
    left = [number for number, meta in enumerate(part.states) if meta.name not in without]
    if not left:
        return None
    numbers = {number: at for at, number in enumerate(left)}

    def runs() -> Iterator[EncodedRun]:
        for run in part.runs():
            if run.state in numbers:
                yield run._replace(state=numbers[run.state])

    return KeyGroupsSnapshot(
        key_groups=part.key_groups,
        states=tuple(part.states[number] for number in left),
        handle=output.write(write_key_groups((), (), runs())),
        key_type=part.key_type,
        key_columns=part.key_columns,
    )
