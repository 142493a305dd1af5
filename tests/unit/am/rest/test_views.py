"""Views of what is unusual: values that JSON has no word for, plans that are none, vertices in mixed states."""

from __future__ import annotations

import datetime
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.am.rest.fakes import (
    ENDED_JOB,
    JOB,
    NOW,
    REDUCE,
    STARTED,
    FakeCluster,
    attempt,
    job_details,
    task_executor_info,
)
from yarrow.am.rest.log_files import LogFolder
from yarrow.am.rest.models.accumulators import as_json
from yarrow.am.rest.models.jobs import JobAccumulators
from yarrow.am.rest.views.jobs import job_configuration, plan_of
from yarrow.am.rest.views.task_managers import count_tasks, task_manager_details
from yarrow.am.rest.views.times import aggregate_state, attempt_span, state_durations, tasks_span
from yarrow.am.rest.views.vertices import back_pressure
from yarrow.common.job_status import JobStatus
from yarrow.runtime.graph.states import ExecutionState, JobType

S = ExecutionState


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        ({"a": float("inf")}, {"a": None}),
        (datetime.date(2013, 1, 1), "2013-01-01"),
        ({(1, 2): 3}, {"(1, 2)": 3}),
        ({1: 2}, {"1": 2}),
        (2**70, 2**70),
        ([1, "a", None, True], [1, "a", None, True]),
    ],
)
def test_every_accumulator_has_a_form_in_json(value: Any, expected: Any) -> None:
    assert as_json(value) == expected
    (shown,) = JobAccumulators(user_task_accumulators={"x": value}).user_task_accumulators  # type: ignore[arg-type]
    json.loads(shown.value) if not isinstance(value, str) else None


@pytest.mark.parametrize("plan", [{}, {"nodes": 5}, {"nodes": [{"id": 1}]}, {"nodes": [], "type": "NO"}])
def test_a_plan_that_is_none_is_shown_empty(plan: dict[str, Any]) -> None:
    shown = plan_of(plan, JOB, "words", JobType.BATCH)
    assert (shown.jid, shown.name, shown.nodes) == (JOB, "words", [])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([S.CREATED, S.CREATED], S.CREATED),
        ([S.CREATED, S.SCHEDULED], S.SCHEDULED),
        ([S.SCHEDULED, S.DEPLOYING], S.DEPLOYING),
        ([S.RUNNING, S.INITIALIZING], S.INITIALIZING),
        ([S.RUNNING, S.FINISHED], S.RUNNING),
        ([S.CREATED, S.FINISHED], S.RUNNING),
        ([S.FINISHED, S.FINISHED], S.FINISHED),
        ([S.CANCELED, S.FINISHED], S.CANCELED),
        ([S.CANCELING, S.CANCELED], S.CANCELING),
        ([S.FAILED, S.CANCELING], S.FAILED),
    ],
)
def test_state_of_a_vertex(states: list[ExecutionState], expected: ExecutionState) -> None:
    assert aggregate_state([attempt(REDUCE, n, state) for n, state in enumerate(states)]) is expected


@given(st.integers(0, 4), st.sampled_from([None, S.CANCELING, S.FINISHED, S.CANCELED, S.FAILED]))
def test_durations_add_up_to_the_life_of_an_attempt(reached: int, ended: ExecutionState | None) -> None:
    order = [S.CREATED, S.SCHEDULED, S.DEPLOYING, S.INITIALIZING, S.RUNNING]
    stamps = {each.value: STARTED + 100 * n for n, each in enumerate(order[: reached + 1])}
    end = NOW if ended is None else STARTED + 1000
    if ended is not None:
        stamps[ended.value] = end
    made = msgspec.structs.replace(attempt(REDUCE, 0, ended or order[reached]), timestamps=stamps)
    durations = state_durations(made, NOW)
    assert sum(spent for spent in durations.values() if spent >= 0) == end - STARTED
    assert [state for state, spent in durations.items() if spent >= 0] == order[: reached + 1]


def test_a_vertex_ends_with_its_last_task() -> None:
    running = [attempt(REDUCE, 0, S.FINISHED), attempt(REDUCE, 1)]
    assert tasks_span(running, NOW).end_time == -1
    ended = [attempt(REDUCE, 0, S.FINISHED), attempt(REDUCE, 1, S.CANCELED)]
    assert tasks_span(ended, NOW) == attempt_span(ended[0], NOW)
    never = msgspec.structs.replace(attempt(REDUCE, 0, S.CREATED), timestamps={"CREATED": STARTED})
    assert tasks_span([never], NOW).duration == -1


@pytest.mark.parametrize(
    ("pressured", "level"), [(0, "ok"), (100, "ok"), (101, "low"), (500, "low"), (501, "high")]
)
def test_levels_of_back_pressure(pressured: float, level: str) -> None:
    task = attempt(REDUCE, 0, metrics={"backPressuredTimeMsPerSecond": pressured})
    vertex = msgspec.structs.replace(job_details(JOB, JobStatus.RUNNING).vertices[1], subtasks=(task,))
    assert back_pressure(vertex, NOW).backpressure_level == level


def test_tasks_of_a_job_are_shared_out_to_its_slots() -> None:
    info = task_executor_info()
    two = tuple(msgspec.structs.replace(slot, job_id=JOB) for slot in info.registration.slot_report.slots)
    info = msgspec.structs.replace(info, allocated=two, metrics={"Status.JVM.Memory.Heap.Used": float("nan")})
    jobs = [job_details(JOB, JobStatus.RUNNING), job_details(ENDED_JOB, JobStatus.FINISHED)]
    shown = task_manager_details(info, count_tasks(jobs), NOW)
    assert [slot.assigned_tasks for slot in shown.allocated_slots] == [2, 1]
    assert (shown.assigned_tasks, shown.metrics.heap_used) == (3, 0)


def test_the_configuration_of_a_job_tells_where_spark_pages_are() -> None:
    """Flink's page shows each entry, and no other field that REST fills."""
    job = job_details(JOB, JobStatus.RUNNING)
    without = job_configuration(job).execution_config.user_config
    assert "spark-pages" not in without and without["parallelism.default"] == "2"
    shown = job_configuration(msgspec.structs.replace(job, has_spark_pages=True)).execution_config.user_config
    assert shown == {**without, "spark-pages": f"/jobs/{JOB}/spark/"}


def test_log_of_a_task_executor_is_not_the_control_planes(cluster: FakeCluster) -> None:
    (cluster.logs / "master.log").rename(cluster.logs / "taskexecutor-1.log")
    folder = LogFolder(cluster.logs)
    assert b"".join(folder.read_main_log()) == b""
    assert b"".join(folder.read_main_output()) == b"printed\n"
