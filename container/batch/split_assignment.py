"""Splits of a source, assigned once for all its tasks: the enumerator runs against stand-ins of the readers.

Owner: the thread that calls `assign`; the enumerator has a thread of its own meanwhile. The stand-ins register,
and request a split after each that they get. Must not open readers.
"""

from __future__ import annotations

import pickle
import threading
from typing import Final, NamedTuple, cast

import msgspec

from yarrow.container.sources.coordinator_state import dump_state, load_state
from yarrow.container.sources.source_coordinator import SourceCoordinator
from yarrow.container.sources.source_events import UNNUMBERED, Message, ReaderInbox, encode_to_coordinator
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobVertexID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import JobGraph

_SNAPSHOT: Final = 1
_AS_SAVEPOINT: Final = CheckpointOptions(
    kind=SnapshotKind.SAVEPOINT, location=CheckpointLocation(directory="")
)
#: Seconds until an enumerator must have assigned its splits.
ASSIGNMENT_SECONDS = 300.0


class SplitAssignmentError(YarrowError):
    """The splits of a source cannot be assigned before its readers run; the message names the source."""


def assign(
    graph: JobGraph, vertex_id: JobVertexID, parallelism: int, timeout: float = ASSIGNMENT_SECONDS
) -> list[list[bytes]]:
    """The encoded splits of each of `parallelism` tasks, in order; empty lists for a vertex without splits.

    Raises OperatorFailure if the enumerator fails, and SplitAssignmentError if it sends events to readers or
    does not end.
    """
    if not graph.vertex(vertex_id).has_enumerator:
        return [[] for _ in range(parallelism)]
    return _run(graph, vertex_id, parallelism, timeout, keeps_state=False).splits


class AssignedSplits(NamedTuple):
    """The splits of each task, and the state in which the enumerator was then."""

    splits: list[list[bytes]]
    #: As a savepoint holds it; b"" if nobody asked for it, or there is no enumerator.
    enumerator: bytes = b""


def assign_history(
    graph: JobGraph, vertex_id: JobVertexID, parallelism: int, timeout: float = ASSIGNMENT_SECONDS
) -> AssignedSplits:
    """The same as `assign`, with the state from which the stream's enumerator goes on."""
    if not graph.vertex(vertex_id).has_enumerator:
        return AssignedSplits([[] for _ in range(parallelism)])
    found = _run(graph, vertex_id, parallelism, timeout, keeps_state=True)
    name = graph.vertex(vertex_id).head.name
    # The splits are with the readers: nothing that was sent to them is to be sent again.
    state = msgspec.structs.replace(load_state(found.enumerator, name), readers=[])
    return AssignedSplits(found.splits, dump_state(state, name))


def _run(
    graph: JobGraph, vertex_id: JobVertexID, parallelism: int, timeout: float, *, keeps_state: bool
) -> AssignedSplits:
    vertex = graph.vertex(vertex_id)
    name = vertex.head.name
    readers = _Readers(name, parallelism)
    coordinator = SourceCoordinator(name, cast(SourceOperator, vertex.head.spec).source, parallelism, readers)
    readers.begin(coordinator)
    try:
        ended = readers.ended.wait(timeout)
        if ended and keeps_state and readers.failure is None:
            coordinator.checkpoint(_SNAPSHOT, _AS_SAVEPOINT)
            ended = readers.saved.wait(timeout)
    finally:
        coordinator.stop_and_join()
    if readers.failure is not None:
        raise readers.failure
    if not ended:
        raise SplitAssignmentError(
            f"the split enumerator of '{name}' did not signal the end of splits to {readers.waiting} of {parallelism} "
            f"readers within {timeout:g} s. Batch mode assigns all splits before readers run. Let the enumerator call "
            "signal_no_more_splits, or run the job in STREAMING mode"
        )
    return AssignedSplits(readers.splits, readers.enumerator)


class _Readers:
    """The CoordinatorHost of an enumerator whose readers only request splits."""

    def __init__(self, name: str, parallelism: int) -> None:
        self._name = name
        self.splits: list[list[bytes]] = [[] for _ in range(parallelism)]
        self.failure: BaseException | None = None
        self.ended = threading.Event()
        #: The enumerator's snapshot, once it is there or the enumerator has failed.
        self.enumerator = b""
        self.saved = threading.Event()
        self._inboxes = [ReaderInbox(-1, -1) for _ in range(parallelism)]
        #: Number of each stand-in's next message.
        self._numbers = [0] * parallelism
        self._reading = set(range(parallelism))
        self._coordinator: SourceCoordinator

    @property
    def waiting(self) -> int:
        """Number of readers that may get more splits."""
        return len(self._reading)

    def begin(self, coordinator: SourceCoordinator) -> None:
        """Starts the enumerator; all readers register before the first one requests a split."""
        self._coordinator = coordinator
        coordinator.start()
        for subtask in range(len(self.splits)):
            self._tell(subtask, "register", "", [], -1)
        for subtask in range(len(self.splits)):
            self._tell(subtask, "request")

    def _tell(self, subtask: int, *message: object) -> None:
        payload = encode_to_coordinator(self._inboxes[subtask].taken, self._numbers[subtask], message)
        self._numbers[subtask] += 1
        self._coordinator.handle(subtask, ExecutionAttemptID(f"batch_{subtask}_0"), payload)

    # ------------------------------------------------------------------ CoordinatorHost: the enumerator's thread

    def send(self, subtask: int, attempt: ExecutionAttemptID, payload: bytes) -> None:
        """Takes a message of the enumerator to a reader."""
        for message in self._inboxes[subtask].receive(payload):
            self._take(subtask, message)

    def _take(self, subtask: int, message: Message) -> None:
        if message[0] == "splits":
            self.splits[subtask] += [encode_split(split) for split in message[1]]
            self._tell(subtask, "request")
        elif message[0] == "no_more":
            self._reading.discard(subtask)
            if not self._reading:
                self.ended.set()
        elif message[0] == "event":
            self.fail(
                SplitAssignmentError(
                    f"the split enumerator of '{self._name}' sends events to its readers (send_event_to_reader), but "
                    "batch mode assigns all splits before readers run. Use a source whose enumerator only assigns "
                    "splits, or run the job in STREAMING mode"
                )
            )

    def fail(self, error: BaseException) -> None:
        """Takes a failure of the enumerator; the first one counts."""
        self.failure = self.failure or error
        self.ended.set()
        self.saved.set()

    def deliver(self, checkpoint_id: int, options: CheckpointOptions, state: bytes) -> None:
        """Takes the state of the enumerator that has assigned all splits."""
        self.enumerator = state
        self.saved.set()

    def decline(self, checkpoint_id: int, error: BaseException) -> None:
        """Takes a failure to take the state."""
        self.fail(error)


def encode_split(split: object) -> bytes:
    """A split as it travels to the task that reads it."""
    return pickle.dumps(split, 5)


def split_events(splits: tuple[bytes, ...]) -> list[bytes]:
    """The events by which a reader gets all its splits, and hears that no more come."""
    messages: list[Message] = [("splits", [pickle.loads(split) for split in splits])] if splits else []
    messages.append(("no_more",))
    return [pickle.dumps((UNNUMBERED, UNNUMBERED, pickle.dumps(message, 5)), 5) for message in messages]
