"""SavepointEnvironment: operators run against a savepoint in the calling thread, without a cluster.

The operators are those of a job (chain, keyed backend, timers), at parallelism 1, restored from the savepoint and
snapshotted into another. Time stands still but for `advance` and `watermark`. Owner: the calling thread.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Final

from msgspec import UNSET, structs

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.fragment import FragmentSubtask
from yarrow.container.operators.base import RestoredState
from yarrow.embedded.open_fragment import OpenEnds, OpenFragment, StreamsOf
from yarrow.runtime.common.clock import ManualClock, SystemClock
from yarrow.runtime.common.ids import JobID, OperatorID, RandomIdFactory
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorState, OperatorSubtaskState
from yarrow.runtime.snapshot.opening import OpenedSnapshot
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.runtime.snapshot.savepoint_check import (
    max_parallelism_of_savepoint,
    require_kinds,
    with_max_parallelism,
)
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.new_folder import new_folder
from yarrow.state_processor.pickle_trust import PickleTrust
from yarrow.state_processor.stored_state import refuse_pickles_of

#: Rows that are pushed as one batch.
_BATCH: Final = 1000


class SavepointEnvironment:
    """Runs the operators of `fragment`, a function of streams, restored by their uids from `savepoint`.

    Without `savepoint` they begin empty. State of other operators is left alone, and is not in the savepoint that
    `write` makes. Use it as a context manager.
    """

    def __init__(
        self,
        fragment: StreamsOf,
        savepoint: str | None = None,
        *,
        inputs: int = 1,
        types: Sequence[TypeInformation | None] | None = None,
        configuration: Mapping[str, str] | None = None,
        max_parallelism: int | None = None,
        now_ms: int | None = None,
        trust_pickle: bool = False,
    ) -> None:
        """Opens a savepoint; `now_ms` is the processing time, by default the machine's.

        Pickled values are read only with `trust_pickle`, or if `configuration` has the secret that sealed
        them. The secret is that of `security.snapshot.secret-file`. With one, `write` seals too.

        Raises SnapshotError, FragmentFailedError.
        """
        self._trust = PickleTrust.of(configuration)
        self._trusted = trust_pickle
        self._opened: OpenedSnapshot | None = None
        if savepoint is not None:
            self._opened, self._trusted = self._trust.open(savepoint, trust_pickle)
        self._next_checkpoint = 1 if self._opened is None else self._opened.metadata.checkpoint_id + 1
        self._folder = tempfile.TemporaryDirectory(prefix="yarrow-state-")
        settings = {"state.backend.rocksdb.localdir": self._folder.name, **(configuration or {})}
        if max_parallelism is not None:
            settings["pipeline.max-parallelism"] = str(max_parallelism)
        try:
            self._running = OpenFragment(
                fragment,
                OpenEnds(inputs, types),
                settings,
                ManualClock(epoch_ms=SystemClock().epoch_ms() if now_ms is None else now_ms),
                self._restore,
            )
        except BaseException:
            self._folder.cleanup()
            raise

    def _restore(self, graph: JobGraph) -> tuple[JobGraph, Mapping[FragmentSubtask, RestoredState]]:
        if self._opened is None:
            return graph, {}
        metadata, directory = _as_if_running(self._opened.metadata), self._opened.directory
        graph = with_max_parallelism(graph, max_parallelism_of_savepoint(metadata, graph))
        # Only operators that the fragment lacks may be left out.
        require_kinds(metadata, graph)
        assignment = assign(metadata, graph, allow_non_restored=True)
        read = SnapshotReader(directory).read
        if not self._trusted:
            own = {operator.id for vertex in graph.vertices for operator in vertex.operators}
            for state in metadata.operators:
                if state.operator_id in own:
                    refuse_pickles_of(state)
        return graph, {
            FragmentSubtask(vertex.id): RestoredState(
                metadata.checkpoint_id, assignment.tasks.get((vertex.id, 0), {}), read, trusted=self._trusted
            )
            for vertex in graph.vertices
        }

    # ------------------------------------------------------------------ running

    def push(self, rows: Iterable[Any], input: int = 0) -> None:
        """Gives rows to an input and runs until nothing moves. Raises FragmentFailedError."""
        for batch in _pieces(rows):
            self._running.push(*batch, input=input)

    def push_timestamped(self, rows: Iterable[tuple[Any, int]], input: int = 0) -> None:
        """The same for pairs of a row and its timestamp in ms."""
        for batch in _pieces(rows):
            self._running.push(
                *(row for row, _ in batch), input=input, timestamps=[stamp for _, stamp in batch]
            )

    def watermark(self, timestamp: int, input: int = 0) -> None:
        """Move event time on (ms): timers fire."""
        self._running.watermark(timestamp, input)

    def advance(self, seconds: float) -> None:
        """Move processing time on: due timers fire."""
        self._running.advance(seconds)

    def take(self, output: int = 0) -> list[Any]:
        """The rows of an output since the last call."""
        return self._running.take(output)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, output: SnapshotOutput) -> dict[OperatorID, OperatorSubtaskState]:
        """The state of all operators, written to `output` in the form of savepoints."""
        number = self._next_checkpoint
        self._next_checkpoint += 1
        states: dict[OperatorID, OperatorSubtaskState] = {}
        for operators in self._running.fragment.snapshot(number, output).values():
            states.update(operators)
        return states

    def write(self, path: str) -> str:
        """Writes a savepoint of the fragment's operators into a new folder; gives its path."""
        folder = new_folder(path)
        with folder:
            states = self.snapshot(folder.output)
            graph = self._running.graph
            operators = tuple(
                OperatorState(
                    operator_id=operator.id,
                    name=operator.name,
                    uid=operator.uid,
                    parallelism=1,
                    max_parallelism=vertex.max_parallelism,
                    subtasks={0: states[operator.id]},
                    kind=operator.spec.state_kind or UNSET,
                )
                for vertex in graph.vertices
                for operator in vertex.operators
                if operator.id in states
            )
            if not operators:
                raise StateProcessorError(f"{path}: no operator has state; nothing was written")
            before = None if self._opened is None else self._opened.metadata
            return folder.complete(self._metadata(before, operators), self._trust.secret)

    def _metadata(
        self, before: CheckpointMetadata | None, operators: tuple[OperatorState, ...]
    ) -> CheckpointMetadata:
        from yarrow import __version__

        return CheckpointMetadata(
            engine_version=__version__,
            job_id=JobID(RandomIdFactory().hex_id()) if before is None else before.job_id,
            job_name=self._running.graph.name if before is None else before.job_name,
            checkpoint_id=self._next_checkpoint - 1,
            timestamp_ms=SystemClock().epoch_ms(),
            kind=SnapshotKind.SAVEPOINT,
            operators=operators,
        )

    # ------------------------------------------------------------------ end

    def close(self) -> None:
        """Closes the operators."""
        self._running.close()
        self._folder.cleanup()

    def __enter__(self) -> SavepointEnvironment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _as_if_running(metadata: CheckpointMetadata) -> CheckpointMetadata:
    """Operators of a job that had read all its input, or was drained, have their state here and take rows again."""
    operators = (structs.replace(state, finished_subtasks=()) for state in metadata.operators)
    return structs.replace(metadata, operators=tuple(operators))


def _pieces(rows: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(rows)
    while piece := list(islice(remaining, _BATCH)):
        yield piece
