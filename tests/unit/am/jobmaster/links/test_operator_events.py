"""OperatorEvents: where an event goes, what waits for its receiver and what is dropped."""

from __future__ import annotations

import pytest

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from yarrow.am.jobmaster.links.operator_events import OperatorEvents
from yarrow.runtime.common.ids import OperatorID, ResourceID
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import OperatorEvent, ResetSubtask


class Receiver:
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.events: list[OperatorEvent] = []

    def send_event(self, event: OperatorEvent) -> None:
        self.events.append(event)

    def reset_subtask(self, reset: ResetSubtask) -> None:
        raise AssertionError(reset)


class Routed:
    """A job of two subtasks, and the events that reached its TaskExecutor."""

    def __init__(self) -> None:
        self.scheduling = Scheduling(linear_job(Stage(2)))
        self.receiver = Receiver()
        self.links: dict[ResourceID, Receiver] = {}
        self.events = OperatorEvents(self.scheduling.graph, self.links)

    def run(self) -> None:
        self.scheduling.running(2)
        for execution in self.scheduling.graph.executions():
            assert execution.worker is not None
            self.links[execution.worker.resource_id] = self.receiver

    def event(self, subtask: int) -> OperatorEvent:
        vertex = self.scheduling.execution(0, 0).vertex.id
        return OperatorEvent(
            job_id=self.scheduling.graph.job.job_id,
            vertex_id=vertex,
            operator_id=OperatorID("s"),
            target_subtask=subtask,
            source_subtask=-1,
            payload=b"",
        )


def test_an_event_goes_where_its_receiver_runs() -> None:
    routed = Routed()
    routed.run()
    routed.events.send(routed.event(1))
    assert routed.receiver.events == [routed.event(1)]


def test_one_that_comes_before_its_receiver_waits_and_comes_once() -> None:
    routed = Routed()
    routed.events.send(routed.event(0))
    routed.run()
    assert routed.receiver.events == []
    for _ in range(2):
        routed.events.deployed(routed.scheduling.graph.executions())
    assert routed.receiver.events == [routed.event(0)]


@pytest.mark.parametrize(
    "ends", [(ExecutionState.FAILED,), (ExecutionState.CANCELING, ExecutionState.CANCELED)]
)
def test_one_for_a_reader_that_is_gone_is_dropped(ends: tuple[ExecutionState, ...]) -> None:
    routed = Routed()
    routed.run()
    for state in ends:
        routed.scheduling.execution(0, 0).machine.transition(state)
    routed.events.send(routed.event(0))
    assert routed.receiver.events == []


def test_one_for_a_task_executor_that_is_gone_is_dropped() -> None:
    routed = Routed()
    routed.run()
    routed.links.clear()
    routed.events.send(routed.event(0))
    assert routed.receiver.events == []
