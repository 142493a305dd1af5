"""SourceHosting: the split enumerators of a worker, and the routing of events between them and readers.

An enumerator begins with subtask 0 of its source, and outlives a failed or cancelled attempt of it. The next
attempt keeps the enumerator if the JobMaster says so. It begins another one if all readers restart.

Owner: the worker's task thread; coordinators call `send` of their host from their own threads. An event is
delivered only to the attempt that it names. An early event waits for its attempt; an event for an ended
attempt is dropped. Must not know checkpoints beyond forwarding them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast

import msgspec

from yarrow.container.protocol.errors import NotReadyForCheckpointError, TaskSubmissionError
from yarrow.container.protocol.worker_protocol import EmitOperatorEvent, FromWorker
from yarrow.container.sources.source_coordinator import RestoredCoordinator, SourceCoordinator
from yarrow.container.task.checkpointing.worker_checkpoints import WorkerCheckpoints
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_builder import TaskBuilder
from yarrow.runtime.common.ids import (
    ExecutionAttemptID,
    JobID,
    JobVertexID,
    OperatorID,
    WorkerID,
    attempt_place,
)
from yarrow.runtime.data.checkpoint_options import CheckpointOptions
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    COORDINATOR_SUBTASK,
    JOB_MASTER_SUBTASK,
    NotifyCheckpoint,
    OperatorEvent,
    RateShare,
    ResetSubtask,
    TriggerCheckpoint,
)
from yarrow.runtime.rpc.messages import CheckpointNotice as Notice

#: The place of an attempt: vertex and subtask; its attempts follow each other.
_Place = tuple[JobID, JobVertexID, int]


def hosts_enumerator(builder: TaskBuilder) -> bool:
    """Whether a split enumerator must run beside the task, even if its own reader had ended before."""
    descriptor = builder.descriptor
    if descriptor.subtask != 0 or not builder.vertex.has_enumerator:
        return False
    is_needed = descriptor.restore_coordinator is not None or descriptor.enumerator_goes_on
    return not descriptor.finished_before or is_needed


class Readers(Protocol):
    """Finds the tasks of this worker."""

    def task_of(self, attempt: ExecutionAttemptID) -> StreamTask | None:
        """The live task of an attempt; None if it has ended."""
        ...


class EndedEnumerator(NamedTuple):
    """The state of the enumerator beside an ended task."""

    #: It continues: it serves readers in other workers, and the next attempt need not begin another.
    lives: bool = False
    threads_left: tuple[str, ...] = ()
    #: Reader attempts that had finished when it ended, if it had told its task that all had; else None.
    finished_readers: tuple[ExecutionAttemptID, ...] | None = None


class _Hosted:
    """A coordinator with the attempts of subtask 0 beside which it has lived."""

    def __init__(self, builder: TaskBuilder, operator: OperatorDescriptor, task: StreamTask) -> None:
        self.operator = operator
        #: Readers may know it by any of them.
        self.attempts: set[ExecutionAttemptID] = set()
        self.failure: BaseException | None = None
        self.coordinator: SourceCoordinator
        self.go_on(builder, task)

    def go_on(self, builder: TaskBuilder, task: StreamTask) -> None:
        """Assigns it to that attempt."""
        self.builder = builder
        self.task = task
        self.attempt = builder.descriptor.attempt_id
        self.attempts.add(self.attempt)


class _Host:
    """The CoordinatorHost of one coordinator."""

    def __init__(self, hosting: SourceHosting, hosted: _Hosted) -> None:
        self._hosting = hosting
        self._hosted = hosted

    def send(self, subtask: int, attempt: ExecutionAttemptID, payload: bytes) -> None:
        """Sends an event. Any thread."""
        hosted = self._hosted
        self._hosting.route(
            hosted.builder, hosted.operator.id, subtask, COORDINATOR_SUBTASK, payload, attempt, hosted.attempt
        )

    def fail(self, error: BaseException) -> None:
        """Fails the task. Any thread."""
        self._hosted.failure = error
        task = self._hosted.task
        task.post(lambda: task.fail(error))

    def deliver(self, checkpoint_id: int, options: CheckpointOptions, state: bytes) -> None:
        """Takes a snapshot. Any thread."""
        hosted = self._hosted
        self._hosting.checkpoints.deliver_coordinator(
            hosted.builder.graph.job_id,
            hosted.operator.id,
            hosted.operator.name,
            checkpoint_id,
            options,
            state,
        )

    def decline(self, checkpoint_id: int, error: BaseException) -> None:
        """Declines a checkpoint. Any thread."""
        self._hosting.checkpoints.decline_coordinator(self._hosted.builder.graph.job_id, checkpoint_id, error)


class SourceHosting:
    """All coordinators of one worker."""

    def __init__(
        self,
        worker_id: WorkerID,
        readers: Readers,
        checkpoints: WorkerCheckpoints,
        post: Callable[[Callable[[], None]], None],
        send: Callable[[FromWorker], None],
    ) -> None:
        self.checkpoints = checkpoints
        self._worker_id = worker_id
        self._readers = readers
        self._post = post
        self._send = send
        self._hosted: dict[tuple[JobID, OperatorID], _Hosted] = {}
        #: Events whose attempt has not come here yet, by that attempt.
        self._early: dict[ExecutionAttemptID, list[OperatorEvent]] = defaultdict(list)
        #: By attempt that must not begin: threads of the former enumerator that are still alive.
        self._stuck: dict[ExecutionAttemptID, tuple[str, ...]] = {}
        #: Number of the last attempt that has begun here, by place.
        self._begun: dict[_Place, int] = {}

    # ------------------------------------------------------------------ life

    def task_began(self, builder: TaskBuilder, task: StreamTask, restored: bytes | None) -> None:
        """Takes a new task; with subtask 0 of a source its coordinator begins and replaces a former one."""
        descriptor = builder.descriptor
        place = (builder.graph.job_id, builder.vertex.id, descriptor.subtask)
        self._begun[place] = descriptor.attempt_number
        self._forget_early(builder)
        if not hosts_enumerator(builder):
            return
        head = builder.vertex.head
        key = (builder.graph.job_id, head.id)
        if descriptor.enumerator_goes_on:
            self._go_on(key, builder, task)
            return
        if stuck := self._stop(key):
            self._stuck[descriptor.attempt_id] = stuck
            error = TaskSubmissionError(
                f"the earlier {stuck[0]} does not end: the TaskExecutor must replace its worker"
            )
            task.post(partial(task.fail, error))
            return
        hosted = _Hosted(builder, head, task)
        hosted.coordinator = SourceCoordinator(
            head.name,
            cast(SourceOperator, head.spec).source,
            builder.vertex.parallelism,
            _Host(self, hosted),
            RestoredCoordinator(descriptor.restored_checkpoint_id, restored, descriptor.restore_trusted),
        )
        self._hosted[key] = hosted
        hosted.coordinator.start()

    def _go_on(self, key: tuple[JobID, OperatorID], builder: TaskBuilder, task: StreamTask) -> None:
        hosted = self._hosted.get(key)
        if hosted is None:
            name = builder.vertex.operators[0].name
            error = TaskSubmissionError(
                f"the split enumerator of '{name}' does not run in this worker any more: all readers must start again"
            )
            task.post(partial(task.fail, error))
            return
        hosted.go_on(builder, task)
        # After `go_on`: a failure in between reaches this task in at least one way.
        if (failure := hosted.failure) is not None:
            task.post(partial(task.fail, failure))

    def _forget_early(self, builder: TaskBuilder) -> None:
        """Forgets events for former attempts of the place."""
        place, number = attempt_place(builder.descriptor.attempt_id)
        for attempt in list(self._early):
            other, earlier = attempt_place(attempt)
            if other == place and earlier < number:
                del self._early[attempt]

    def deliver_early(self, builder: TaskBuilder) -> None:
        """Delivers the events that came before the task."""
        for event in self._early.pop(builder.descriptor.attempt_id, ()):
            self.deliver(event)

    def task_ended(self, builder: TaskBuilder, state: ExecutionState) -> EndedEnumerator:
        """Takes the end of a task in that state; it may end the coordinator beside it."""
        self._early.pop(builder.descriptor.attempt_id, None)
        place = (builder.graph.job_id, builder.vertex.id, builder.descriptor.subtask)
        self._begun[place] = max(builder.descriptor.attempt_number, self._begun.get(place, -1))
        key = (builder.graph.job_id, builder.vertex.operators[0].id)
        attempt = builder.descriptor.attempt_id
        if stuck := self._stuck.pop(attempt, ()):
            return EndedEnumerator(threads_left=stuck)
        hosted = self._hosted.get(key)
        if hosted is None or builder.descriptor.subtask != 0:
            return EndedEnumerator()
        # The attempt that was to continue it may have failed before it began.
        is_its_own = attempt == hosted.attempt or builder.descriptor.enumerator_goes_on
        if not is_its_own:
            return EndedEnumerator()
        if state is not ExecutionState.FINISHED and hosted.failure is None:
            return EndedEnumerator(lives=True)
        source = hosted.task.chain.source
        was_stopped = source is not None and source.was_stopped
        threads_left = self._stop(key)
        if state is not ExecutionState.FINISHED or was_stopped:
            return EndedEnumerator(threads_left=threads_left)
        # A reader may have gone back since its enumerator was complete: only the JobMaster sees both.
        return EndedEnumerator(
            threads_left=threads_left, finished_readers=hosted.coordinator.finished_readers
        )

    def _stop(self, key: tuple[JobID, OperatorID]) -> tuple[str, ...]:
        hosted = self._hosted.pop(key, None)
        if hosted is None:
            return ()
        return hosted.coordinator.stop_and_join()

    def stop_all(self) -> None:
        """Stops all coordinators, because the worker ends."""
        for hosted in self._hosted.values():
            hosted.coordinator.stop()

    # ------------------------------------------------------------------ events

    def from_reader(
        self, builder: TaskBuilder, operator_id: str, target: int, source: int, payload: bytes
    ) -> None:
        """Takes a message of a reader to its coordinator, or of a subtask to the JobMaster. Any thread."""
        if target == JOB_MASTER_SUBTASK:
            event = OperatorEvent(
                job_id=builder.graph.job_id,
                vertex_id=builder.vertex.id,
                operator_id=OperatorID(operator_id),
                target_subtask=target,
                source_subtask=source,
                payload=payload,
                source_attempt=builder.descriptor.attempt_id,
            )
            self._send(EmitOperatorEvent(event=event))
            return
        self.route(
            builder,
            OperatorID(operator_id),
            target,
            source,
            payload,
            builder.attempt_of(builder.vertex.id, 0),
            builder.descriptor.attempt_id,
        )

    def route(
        self,
        builder: TaskBuilder,
        operator: OperatorID,
        target: int,
        source: int,
        payload: bytes,
        target_attempt: ExecutionAttemptID,
        source_attempt: ExecutionAttemptID,
    ) -> None:
        """Sends an event to this worker's own end directly, else through the JobMaster. Any thread."""
        event = OperatorEvent(
            job_id=builder.graph.job_id,
            vertex_id=builder.vertex.id,
            operator_id=operator,
            target_subtask=target,
            source_subtask=source,
            payload=payload,
            target_attempt=target_attempt,
            source_attempt=source_attempt,
        )
        host = builder.address_of(builder.vertex.id, max(target, 0))
        if host is not None and host.worker_id == self._worker_id and self._is_own_place(event):
            self._post(lambda: self.deliver(event))
        else:
            self._send(EmitOperatorEvent(event=event))

    def _is_own_place(self, event: OperatorEvent) -> bool:
        """False if the target was placed elsewhere after the sender was deployed: a later attempt of it."""
        begun = self._begun.get((event.job_id, event.vertex_id, max(event.target_subtask, 0)))
        return begun is None or begun >= attempt_place(event.target_attempt)[1]

    def deliver(self, event: OperatorEvent) -> None:
        """Delivers an event to a coordinator or reader of this worker; holds it until its attempt has come."""
        if event.target_subtask == COORDINATOR_SUBTASK:
            hosted = self._hosted.get((event.job_id, event.operator_id))
            if hosted is not None and (not event.target_attempt or event.target_attempt in hosted.attempts):
                hosted.coordinator.handle(event.source_subtask, event.source_attempt, event.payload)
                return
        else:
            task = self._readers.task_of(event.target_attempt)
            if task is not None:
                hand = _hand_share if event.source_subtask == JOB_MASTER_SUBTASK else _hand_to_reader
                task.post(partial(hand, task, event))
                return
        begun = self._begun.get((event.job_id, event.vertex_id, max(event.target_subtask, 0)), -1)
        if attempt_place(event.target_attempt)[1] > begun:
            self._early[event.target_attempt].append(event)

    # ------------------------------------------------------------------ checkpoints

    def begin_checkpoint(self, trigger: TriggerCheckpoint) -> None:
        """Snapshots the named coordinators."""
        for operator_id in trigger.coordinators:
            hosted = self._hosted.get((trigger.job_id, operator_id))
            if hosted is None:
                error = NotReadyForCheckpointError(
                    f"the split enumerator of operator {operator_id} does not run here"
                )
                self.checkpoints.decline_coordinator(trigger.job_id, trigger.checkpoint_id, error)
            else:
                hosted.coordinator.checkpoint(trigger.checkpoint_id, trigger.options)

    def notify(self, notification: NotifyCheckpoint) -> None:
        """Tells the job's coordinators whether a checkpoint was completed or aborted."""
        for (job_id, _), hosted in self._hosted.items():
            if job_id != notification.job_id:
                continue
            if notification.notice is Notice.COMPLETED:
                hosted.coordinator.completed(notification.checkpoint_id)
            elif notification.notice is Notice.ABORTED:
                hosted.coordinator.aborted(notification.checkpoint_id)

    def reset(self, reset: ResetSubtask) -> None:
        """Takes a reader, and its coordinator, back to a checkpoint."""
        hosted = self._hosted.get((reset.job_id, reset.operator_id))
        if hosted is not None:
            hosted.coordinator.reset(reset.subtask, reset.attempt_id, reset.checkpoint_id)


def _hand_to_reader(task: StreamTask, event: OperatorEvent) -> None:
    source = task.chain.source
    if source is not None:
        with task.chain.attributed(0):
            source.handle_event(event.payload)
        task.wake()


def _hand_share(task: StreamTask, event: OperatorEvent) -> None:
    """Gives a source or sink its share of its rate limit."""
    task.take_share(event.operator_id, msgspec.msgpack.decode(event.payload, type=RateShare).share)
