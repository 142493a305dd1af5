"""Tasks end at any time while checkpoints are under way: each checkpoint that completes is a consistent cut.

A model of tasks sends rows, barriers and ends through queues. The coordinator, its plans and the ExecutionGraph are
the real ones. A consistent cut has, on each channel, as many rows sent as taken.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.counting_ids import CountingIdFactory
from tests.support.job_graphs import Stage, linear_job
from yarrow.am.checkpoint.coordinator import CheckpointCoordinator
from yarrow.am.checkpoint.events import (
    Action,
    Event,
    JobEndEvent,
    LocationReady,
    MetadataStored,
    Notify,
    PrepareLocation,
    Refused,
    Requested,
    StoreMetadata,
    Succeeded,
    TasksFinished,
    TriggerCoordinators,
    TriggerTasks,
    Wake,
)
from yarrow.am.checkpoint.plan import GraphParticipants
from yarrow.am.checkpoint.settings import CheckpointSettings
from yarrow.am.execution.execution_graph import Execution, ExecutionGraph
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, SnapshotKind
from yarrow.runtime.graph.distribution import producers_of
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    AcknowledgeCheckpoint,
    AcknowledgeCoordinator,
    CheckpointMetrics,
    CheckpointNotice,
    TaskExecutionStateUpdate,
)
from yarrow.runtime.snapshot.handles import InlineStateHandle

#: Edges between vertices, by number: a line, two sources of one consumer, and a consumer that skips one.
SHAPES = [((0, 1), (1, 2)), ((0, 2), (1, 2), (2, 3)), ((0, 1), (1, 2), (0, 2))]
KINDS = [
    SnapshotKind.CHECKPOINT,
    SnapshotKind.SAVEPOINT,
    SnapshotKind.SAVEPOINT_SUSPEND,
    SnapshotKind.SAVEPOINT_TERMINATE,
]
Element = tuple[str, int]
ROW: Element = ("row", 0)
END: Element = ("end", 0)


def job(shape: tuple[tuple[int, int], ...], parallelisms: tuple[int, ...]) -> JobGraph:
    count = 1 + max(target for _, target in shape)
    line = linear_job(*(Stage(parallelism) for parallelism in parallelisms[:count]))
    edges = []
    for index, (source, target) in enumerate(shape):
        same = parallelisms[source] == parallelisms[target]
        edges.append(
            msgspec.structs.replace(
                line.edges[0],
                index=index,
                source=line.vertices[source].id,
                target=line.vertices[target].id,
                partitioner=PartitionerSpec(
                    kind=PartitionerKind.FORWARD if same else PartitionerKind.REBALANCE
                ),
            )
        )
    return msgspec.structs.replace(line, edges=tuple(edges))


@dataclass
class Cut:
    """What a task had taken from each producer, and sent to each consumer."""

    taken: Counter[str]
    sent: int


@dataclass
class Task:
    """A task with aligned barriers, as CheckpointCourse and AligningBarrierHandler are."""

    execution: Execution
    kinds: dict[int, SnapshotKind]
    #: It waits at its end for a checkpoint, as sinks do that commit.
    commits: bool
    channels: dict[str, deque[Element]] = field(default_factory=dict)
    consumers: list[deque[Element]] = field(default_factory=list)
    #: Messages of the JobMaster, and to it: each in order.
    inbox: deque[tuple[str, int]] = field(default_factory=deque)
    outbox: deque[AcknowledgeCheckpoint | TaskExecutionStateUpdate | None] = field(default_factory=deque)
    taken: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    ended: set[str] = field(default_factory=set)
    arrived: dict[int, set[str]] = field(default_factory=dict)
    cuts: dict[int, Cut] = field(default_factory=dict)
    latest: int = -1
    at_end: bool = False
    is_over: bool = False
    covered: bool = False
    #: The savepoint at which it stands.
    stands_at: int | None = None

    @property
    def attempt(self) -> ExecutionAttemptID:
        return self.execution.attempt_id

    def steps(self) -> list[Callable[[], None]]:
        if self.is_over:
            return []
        found: list[Callable[[], None]] = [self.hear] if self.inbox else []
        if self.stands_at is None:
            blocked = set[str]().union(*self.arrived.values())
            found += [
                partial(self.take, name)
                for name, queue in self.channels.items()
                if queue and name not in blocked
            ]
            if self.at_end and (self.covered or not self.commits):
                found.append(self.end)
        return found

    def emit(self, element: Element) -> None:
        self.sent += element == ROW
        for queue in self.consumers:
            queue.append(element)

    def take(self, name: str) -> None:
        what, number = self.channels[name].popleft()
        if what == "row":
            self.taken[name] += 1
            self.emit(ROW)
        elif what == "barrier":
            if number > self.latest:
                self.arrived.setdefault(number, set()).add(name)
                self.look()
        else:
            self.ended.add(name)
            if self.ended == self.channels.keys():
                self.finish()
            self.look()

    def finish(self) -> None:
        self.at_end = True
        self.emit(END)
        if self.commits:
            self.outbox.append(None)

    def look(self) -> None:
        for number in sorted(self.arrived):
            if self.stands_at is None and not self.channels.keys() - self.ended - self.arrived[number]:
                del self.arrived[number]
                self.cut(number)

    def cut(self, number: int) -> None:
        assert number > self.latest, "barriers come in the order of checkpoints"
        self.latest = number
        self.cuts[number] = Cut(self.taken.copy(), self.sent)
        self.emit(("barrier", number))
        kind = self.kinds[number]
        self.outbox.append(
            AcknowledgeCheckpoint(
                job_id=JOB_ID,
                checkpoint_id=number,
                attempt_id=self.attempt,
                states={},
                metrics=CheckpointMetrics(),
                finished=self.at_end or kind is SnapshotKind.SAVEPOINT_TERMINATE,
            )
        )
        if kind.stops_job:
            self.stands_at = number

    def hear(self) -> None:
        what, number = self.inbox.popleft()
        if what == "trigger":
            assert self.stands_at in (None, number)
            if number > self.latest:
                self.arrived.setdefault(number, set())
                self.look()
        elif what == "aborted":
            self.arrived.pop(number, None)
            self.latest = max(self.latest, number)
            assert self.stands_at != number, "a drained task cannot go on"
        elif number in self.cuts:
            if self.stands_at == number:
                self.stands_at = None
                if not self.at_end:
                    self.at_end = True
                    self.emit(END)
                self.covered = True
            self.covered |= self.at_end

    def end(self) -> None:
        self.is_over = True
        self.outbox.append(
            TaskExecutionStateUpdate(
                attempt_id=self.attempt,
                state=ExecutionState.FINISHED,
                timestamp_ms=0,
                latest_checkpoint=self.latest,
            )
        )


JOB_ID = linear_job(Stage(1)).job_id


class Model:
    """A job, its tasks and its coordinator."""

    def __init__(self, graph: JobGraph, commits: bool, chance: random.Random) -> None:
        self.clock = ManualClock(1000)
        self.graph = ExecutionGraph(graph, self.clock, CountingIdFactory())
        for status in (JobStatus.CREATED, JobStatus.RUNNING):
            self.graph.transition(status)
        self.kinds: dict[int, SnapshotKind] = {}
        self.tasks: dict[str, Task] = {}
        last = graph.vertices[-1].id
        for execution in self.graph.executions():
            for state in (
                ExecutionState.SCHEDULED,
                ExecutionState.DEPLOYING,
                ExecutionState.INITIALIZING,
                ExecutionState.RUNNING,
            ):
                execution.machine.transition(state)
            is_sink = execution.vertex.id == last
            self.tasks[execution.attempt_id] = Task(execution, self.kinds, commits and is_sink)
        self._connect(graph)
        sources = [task for task in self.tasks.values() if not task.channels]
        self.bounded = {task.attempt for task in sources if chance.random() < 0.7}
        self.rows = {task.attempt: chance.randrange(10) for task in sources}
        settings = CheckpointSettings(interval=10.0, max_concurrent=1, timeout=1e9)
        participants = GraphParticipants(self.graph, after_tasks_finish=True)
        self.coordinator = CheckpointCoordinator(settings, participants, self.clock)
        self.to_locate: deque[int] = deque()
        self.to_store: deque[int] = deque()
        self.to_answer: deque[tuple[int, OperatorID]] = deque()
        self.aborted: list[int] = []
        self.asked = 0
        self.answers: list[Action] = []
        self.is_over = False
        self.handle(Wake())

    def _connect(self, graph: JobGraph) -> None:
        for edge in graph.edges:
            source, target = self.graph.vertices[edge.source], self.graph.vertices[edge.target]
            for consumer in target.executions:
                for number in producers_of(
                    edge.partitioner.kind, len(source.executions), len(target.executions), consumer.subtask
                ):
                    producer = source.executions[number].attempt_id
                    queue: deque[Element] = deque()
                    self.tasks[consumer.attempt_id].channels[producer] = queue
                    self.tasks[producer].consumers.append(queue)

    # The steps that may come next.

    def steps(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        for task in self.tasks.values():
            found += task.steps()
            if task.outbox:
                found.append(partial(self.hear, task))
            if not (task.channels or task.at_end) and task.stands_at is None:
                if self.rows[task.attempt]:
                    found.append(partial(self.read, task))
                elif task.attempt in self.bounded:
                    found.append(task.finish)
        found += [self.locate] if self.to_locate else []
        found += [self.store] if self.to_store else []
        found += [self.answer] if self.to_answer else []
        return found

    def read(self, task: Task) -> None:
        self.rows[task.attempt] -= 1
        task.emit(ROW)

    def locate(self) -> None:
        number = self.to_locate.popleft()
        self.handle(LocationReady(number, CheckpointLocation(directory=f"/chk-{number}")))

    def answer(self) -> None:
        """A split enumerator answers."""
        number, operator = self.to_answer.popleft()
        self.handle(
            AcknowledgeCoordinator(
                job_id=JOB_ID,
                checkpoint_id=number,
                operator_id=operator,
                state=InlineStateHandle(data=b""),
            )
        )

    def store(self) -> None:
        number = self.to_store.popleft()
        self.handle(MetadataStored(number, f"/chk-{number}"))

    def hear(self, task: Task) -> None:
        message = task.outbox.popleft()
        if message is None:
            task.execution.awaits_final_checkpoint = True
            self.handle(Wake())
        elif isinstance(message, AcknowledgeCheckpoint):
            self.handle(message)
        else:
            self.graph.apply(message)
            if self.graph.all_ended:
                self.is_over = True
                self.handle(JobEndEvent("the job is FINISHED"))
            else:
                self.handle(TasksFinished({task.attempt: message.latest_checkpoint}))

    def ask(self, kind: SnapshotKind) -> None:
        self.asked += 1
        self.handle(Requested(request_id=str(self.asked), kind=kind, directory="/sp"))

    def handle(self, event: Event) -> None:
        for action in self.coordinator.handle(event):
            match action:
                case PrepareLocation(number, kind):
                    self.kinds[number] = kind
                    self.to_locate.append(number)
                case TriggerCoordinators(number, coordinators=operators):
                    self.to_answer.extend((number, operator) for operator in operators)
                case TriggerTasks(number, attempts=attempts):
                    for attempt in attempts:
                        self.tasks[attempt].inbox.append(("trigger", number))
                case StoreMetadata(number):
                    self.check(number)
                    self.to_store.append(number)
                case Notify(number, notice):
                    completed = notice is CheckpointNotice.COMPLETED
                    if notice is CheckpointNotice.SUBSUMED:
                        continue
                    if not (completed or self.is_over):
                        self.aborted.append(number)
                    for task in self.tasks.values():
                        task.inbox.append(("completed" if completed else "aborted", number))
                case Succeeded() | Refused():
                    self.answers.append(action)
                case _:
                    pass

    def check(self, number: int) -> None:
        """Each channel has brought all rows that its producer had sent, and no others."""
        for consumer in self.tasks.values():
            for name in consumer.channels:
                producer = self.tasks[name]
                cut = producer.cuts.get(number)
                assert cut is not None or producer.is_over
                sent = producer.sent if cut is None else cut.sent
                own = consumer.cuts.get(number)
                assert own is not None or consumer.is_over
                taken = consumer.taken if own is None else own.taken
                assert taken[name] == sent, (number, name, consumer.attempt)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    parallelisms=st.tuples(*[st.integers(1, 2)] * 4),
    commits=st.booleans(),
    kinds=st.lists(st.sampled_from(KINDS), max_size=2),
    seed=st.integers(0, 2**32),
)
def test_each_checkpoint_that_completes_is_a_consistent_cut(
    shape: tuple[tuple[int, int], ...],
    parallelisms: tuple[int, ...],
    commits: bool,
    kinds: list[SnapshotKind],
    seed: int,
) -> None:
    chance = random.Random(seed)
    model = Model(job(shape, parallelisms), commits, chance)
    requests = {chance.randrange(60): kind for kind in kinds}
    for number in range(400):
        if number in requests:
            model.ask(requests[number])
        elif chance.random() < 0.1:
            model.clock.advance(10.0)
            model.handle(Wake())
        elif steps := model.steps():
            chance.choice(steps)()
    while steps := model.steps():
        chance.choice(steps)()
    stops = [number for number, kind in model.kinds.items() if kind.stops_job]
    # Nothing is given up but what a stop or the end of the job ends.
    assert not model.aborted or (stops and not set(stops) & set(model.aborted))
    assert len(model.answers) == len(requests)
    if not model.is_over:
        assert model.coordinator.pending == () and not stops
