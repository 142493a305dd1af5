"""CheckpointMessages: which TaskExecutors hear of a checkpoint, and what."""

from __future__ import annotations

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from yarrow.am.checkpoint.events import Notify, TriggerTasks
from yarrow.am.jobmaster.checkpoints.checkpoint_messages import CheckpointMessages
from yarrow.am.jobmaster.links.task_executor_link import OnTriggerFailed
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID, ResourceID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.graph.connector_spec import PrintOperator
from yarrow.runtime.rpc.messages import CheckpointNotice, NotifyCheckpoint, TriggerCheckpoint


class Receiver:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.triggers: list[TriggerCheckpoint] = []
        self.notices: list[NotifyCheckpoint] = []

    def trigger_checkpoint(self, trigger: TriggerCheckpoint, on_failed: OnTriggerFailed) -> None:
        self.triggers.append(trigger)

    def notify_checkpoint(self, notification: NotifyCheckpoint) -> None:
        self.notices.append(notification)


def nobody_fails(trigger: TriggerCheckpoint, error: YarrowError) -> None:
    raise AssertionError(error)


def running() -> tuple[Scheduling, dict[ResourceID, Receiver], CheckpointMessages]:
    """A job of four tasks that all run, in the workers of the TaskExecutors where they were put."""
    scheduling = Scheduling(linear_job(Stage(4, operator=PrintOperator())))
    scheduling.running(4)
    places = {each.worker.resource_id for each in scheduling.graph.executions() if each.worker is not None}
    receivers = {place: Receiver() for place in (*places, ResourceID("idle"))}
    return scheduling, receivers, CheckpointMessages(scheduling.graph, receivers, nobody_fails)


def options() -> CheckpointOptions:
    return CheckpointOptions(kind=SnapshotKind.CHECKPOINT, location=CheckpointLocation(directory="/c"))


def test_a_task_executor_hears_once_of_all_its_tasks_and_others_hear_nothing() -> None:
    scheduling, receivers, messages = running()
    attempts = tuple(execution.attempt_id for execution in scheduling.graph.executions())
    messages.trigger_tasks(TriggerTasks(3, 1000, options(), attempts))
    heard = {place: receiver.triggers for place, receiver in receivers.items() if receiver.triggers}
    assert ResourceID("idle") not in heard and all(len(triggers) == 1 for triggers in heard.values())
    named = [attempt for triggers in heard.values() for attempt in triggers[0].attempts]
    assert sorted(named) == sorted(attempts)
    assert {(t.checkpoint_id, t.timestamp_ms) for triggers in heard.values() for t in triggers} == {(3, 1000)}


def test_a_task_that_is_gone_is_left_out() -> None:
    _, receivers, messages = running()
    messages.trigger_tasks(TriggerTasks(3, 1000, options(), (ExecutionAttemptID("gone"),)))
    assert not any(receiver.triggers for receiver in receivers.values())


def test_all_hear_what_became_of_it() -> None:
    _, receivers, messages = running()
    messages.notify(Notify(4, CheckpointNotice.ABORTED, 3))
    heard = [notice for receiver in receivers.values() for notice in receiver.notices]
    assert len(heard) == len(receivers)
    assert {(n.checkpoint_id, n.notice, n.latest_completed) for n in heard} == {
        (4, CheckpointNotice.ABORTED, 3)
    }
