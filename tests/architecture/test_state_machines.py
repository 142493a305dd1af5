"""Every edge of the tables can be followed, every other step raises, and the document shows the tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import state_machines_page
from yarrow.am.checkpoint.pending import CHECKPOINT_TRANSITIONS, CheckpointState
from yarrow.am.jobmaster.batch.batch_scheduler import BATCH_TRANSITIONS, BatchPhase
from yarrow.am.jobmaster.batch.pipeline_scheduler import STAGE_TRANSITIONS, StagePhase
from yarrow.am.resourcemanager.slots import SLOT_TRANSITIONS, Slot, SlotState
from yarrow.common.job_status import JobStatus
from yarrow.container.supervisor.slot_table import SLOT_TRANSITIONS as TASK_EXECUTOR_SLOT_TRANSITIONS
from yarrow.container.supervisor.slot_table import TaskExecutorSlotState
from yarrow.container.task.task_life import TASK_TRANSITIONS, TaskLife, TaskStage
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.common.state_machine import IllegalTransitionError, StateMachine
from yarrow.runtime.graph.states import (
    EXECUTION_TRANSITIONS,
    JOB_TRANSITIONS,
    ExecutionState,
)
from yarrow.runtime.rpc.messages import ResourceProfile, SlotID

ENDING: list[tuple[Any, Mapping[Any, frozenset[Any]]]] = [
    (JobStatus, JOB_TRANSITIONS),
    (ExecutionState, EXECUTION_TRANSITIONS),
]
TABLES: list[tuple[type[Enum], Mapping[Any, frozenset[Any]]]] = [
    (JobStatus, JOB_TRANSITIONS),
    (ExecutionState, EXECUTION_TRANSITIONS),
    (BatchPhase, BATCH_TRANSITIONS),
    (StagePhase, STAGE_TRANSITIONS),
    (CheckpointState, CHECKPOINT_TRANSITIONS),
    (TaskStage, TASK_TRANSITIONS),
    (TaskExecutorSlotState, TASK_EXECUTOR_SLOT_TRANSITIONS),
]


@pytest.mark.parametrize(("kind", "table"), TABLES, ids=[kind.__name__ for kind, _ in TABLES])
def test_a_machine_follows_its_table_and_nothing_else(
    kind: type[Enum], table: Mapping[Any, frozenset[Any]]
) -> None:
    for source, target in product(kind, kind):
        clock = ManualClock(5)
        machine: StateMachine[Any] = StateMachine("it", source, table, clock)
        clock.advance(1)
        if target in table[source]:
            machine.transition(target)
            assert machine.state is target
            assert machine.timestamps[target] == 1005
        else:
            refused = f"it: no transition from {source.name} to {target.name}"
            with pytest.raises(IllegalTransitionError, match=refused):
                machine.transition(target)
            assert machine.state is source


def test_a_slot_follows_its_table_and_nothing_else() -> None:
    for source, target in product(SlotState, SlotState):
        slot = Slot(SlotID(resource_id=ResourceID("te"), index=0), ResourceProfile(), state=source)
        if target is source or target in SLOT_TRANSITIONS[source]:
            slot.enter(target)
            assert slot.state is target
        else:
            with pytest.raises(IllegalTransitionError, match="slot 0 of te"):
                slot.enter(target)


def test_a_task_keeps_to_its_stages() -> None:
    life = TaskLife("map (1/1)", ManualClock(5))
    seen = [(life.stage, life.is_working, life.is_live)]
    for stage in (TaskStage.RUNNING, TaskStage.SUSPENDED, TaskStage.FINISHING, TaskStage.ENDED):
        life.enter(stage)
        seen.append((life.stage, life.is_working, life.is_live))
    assert seen == [
        (TaskStage.CREATED, False, False),
        (TaskStage.RUNNING, True, True),
        (TaskStage.SUSPENDED, False, True),
        (TaskStage.FINISHING, True, True),
        (TaskStage.ENDED, False, False),
    ]
    with pytest.raises(IllegalTransitionError, match=r"map \(1/1\)': no transition from ENDED to RUNNING"):
        life.enter(TaskStage.RUNNING)
    assert life.stage is TaskStage.ENDED


def test_operators_of_a_task_finish_once() -> None:
    life = TaskLife("map (1/1)", ManualClock(5))
    assert life.begin_to_finish()
    assert life.finished
    assert not life.begin_to_finish()


@pytest.mark.parametrize(("kind", "table"), ENDING)
def test_terminal_states_are_those_without_an_edge(
    kind: type[JobStatus] | type[ExecutionState], table: Mapping[Any, frozenset[Any]]
) -> None:
    for state in kind:
        if isinstance(state, ExecutionState):
            assert state.is_terminal == (not table[state])
        elif state is not JobStatus.SUSPENDED:
            assert state.is_globally_terminal_state() == (not table[state])


def test_the_document_shows_the_tables() -> None:
    path = Path(__file__).parents[2] / "docs" / "state-machines.md"
    assert path.read_text() == state_machines_page.render(), "run: python -m tests.support.pages"
