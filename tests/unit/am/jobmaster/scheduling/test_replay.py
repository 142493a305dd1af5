"""Dumps of a JobScheduler: what is in them, that they replay, and that a decision which has changed is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tests.support.fault_jobs import SHAPES, JobShape
from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN, Scheduling
from tests.unit.am.jobmaster.scheduling.test_failover import restarting
from tests.unit.am.jobmaster.scheduling.test_failover_properties import World
from yarrow.am.jobmaster.scheduling import scheduler_log
from yarrow.am.jobmaster.scheduling.failover import Failover
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.recorded_events import cut
from yarrow.am.jobmaster.scheduling.replay import (
    DumpNotReadError,
    ReplayDifferenceError,
    read_dump,
    replay,
)
from yarrow.am.jobmaster.scheduling.restart_strategies import (
    ExponentialDelayBackoff,
    ExponentialDelaySettings,
    FailureRateBackoff,
    FailureRateSettings,
    FixedDelayBackoff,
    NoRestartBackoff,
    RestartBackoff,
)
from yarrow.am.jobmaster.scheduling.scheduler_events import (
    IdleSlotsChecked,
    JobFailed,
    RescaleSlotsWanted,
    SlotLost,
    TasksUpdated,
)
from yarrow.am.jobmaster.scheduling.scheduler_log import SchedulerLog
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.common.ids import AllocationID
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import FailureCause, TaskExecutionStateUpdate
from yarrow.testing.transactional_files import TransactionalFiles

FAILED, RUNNING = ExecutionState.FAILED, ExecutionState.RUNNING
_REPLAY = (
    "import sys; from yarrow.cli.replay_command import run_replay; [run_replay(f) for f in sys.argv[1:]]"
)


def dump_of(job: Scheduling) -> bytes:
    data = job.log.dump("a test wants it")
    assert data is not None
    return data


def graph_of(shape: JobShape, folder: Path) -> JobGraph:
    """A job of tests/fault at two subtasks a vertex, as its client submits it."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    shape.build(env, str(folder), TransactionalFiles(str(folder / "output")))
    return env.get_job_graph(shape.name)


def with_faults(job: Scheduling, seed: int) -> None:
    """Runs the job to its end, with failures, losses and late messages that `seed` draws."""
    world, random = World(job), Random(seed)
    steps = [
        lambda draw: world.offer(),
        lambda draw: world.report(RUNNING, draw),
        lambda draw: world.report(FAILED, draw),
        world.answer_cancel,
        world.fire,
        world.lose_slot,
        world.lose_task_executor,
    ]
    for _ in range(120):
        if world.ended:
            return
        job.clock.advance(random.random())
        random.choices(steps, weights=[6, 6, 1, 4, 4, 1, 1])[0](random.randrange(50))
    world.settle()


def test_dumps_of_the_jobs_of_fault_tests_replay_in_another_process(tmp_path: Path) -> None:
    files = []
    for number, shape in enumerate(SHAPES):
        backoff = ExponentialDelayBackoff(ExponentialDelaySettings(), Random(number))
        job = Scheduling(graph_of(shape, tmp_path), backoff=backoff)
        # All events since the beginning of the job, and the last ones from a snapshot in its middle.
        job.log = SchedulerLog(job.scheduler, job.clock, events_kept=1000 if number % 2 else 10)
        with_faults(job, number)
        assert "TasksRestarting" in {
            action["action"] for event in read_dump(dump_of(job)).events for action in event.actions
        }
        files.append(tmp_path / f"{shape.name}.json")
        files[-1].write_bytes(dump_of(job))
    # Sets are in another order there: no decision may depend on it.
    for seed in ("1", "2"):
        command = [sys.executable, "-c", _REPLAY, *map(str, files)]
        done = subprocess.run(
            command,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("lead to the same actions.") == len(SHAPES)


@pytest.mark.parametrize(
    "backoff",
    [
        NoRestartBackoff(),
        FailureRateBackoff(FailureRateSettings(2, 10.0, 0.5)),
        ExponentialDelayBackoff(ExponentialDelaySettings(), Random(5)),
    ],
    ids=lambda backoff: type(backoff).__name__,
)
def test_a_strategy_goes_on_from_its_snapshot(backoff: RestartBackoff) -> None:
    job = Scheduling(linear_job(Stage(1)), backoff=backoff)
    job.running(1)
    for _ in range(4):
        job.clock.advance(1)
        job.report(FAILED, cause=BROKEN)
        for restart in job.scheduler.snapshot().restarts.pending:
            job.clock.advance(5)
            job.handle_due(restart.id)
    events = read_dump(dump_of(job)).events
    assert events[0].number > 1, "replayed from a snapshot that is not the first"
    job.replay()


def test_a_decision_that_has_changed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    job = restarting(linear_job(Stage(2)), delay=1.0)
    job.log = SchedulerLog(job.scheduler, job.clock)
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    dump = read_dump(dump_of(job))
    replay(dump)
    with monkeypatch.context() as patched, pytest.raises(ReplayDifferenceError) as raised:
        patched.setattr(FixedDelayBackoff, "delay", lambda self: 2.0)
        replay(dump)
    assert raised.value.number == 4
    assert str(raised.value).startswith(
        'event 4 (TasksUpdated), action 1: it was {"action":"TasksRestarting"'
    )
    assert '"delay":1.0' in str(raised.value) and '"delay":2.0' in str(raised.value)


def test_an_action_that_is_missing_or_new_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    job = restarting(linear_job(Stage(2)))
    job.running(2)
    job.log = SchedulerLog(job.scheduler, job.clock)
    job.report(FAILED, job.execution(0, 0), cause=BROKEN)
    dump = read_dump(dump_of(job))
    replay(dump)
    with monkeypatch.context() as patched:
        patched.setattr(Failover, "tasks_to_restart", lambda self, failed: frozenset(failed))
        with pytest.raises(ReplayDifferenceError, match=r"event 1 \(TasksUpdated\), action 1"):
            replay(dump)
    (event,) = dump.events
    fewer = msgspec.structs.replace(dump, events=[msgspec.structs.replace(event, actions=event.actions[:-1])])
    with pytest.raises(ReplayDifferenceError, match=r"it was none; replayed, it is \{"):
        replay(fewer)


def test_an_error_of_the_scheduler_is_kept_and_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    job = restarting(linear_job(Stage(1)))
    job.running(1)

    def broken(self: JobScheduler, *args: Any) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(JobScheduler, "_slot_lost", broken)
        with pytest.raises(ZeroDivisionError):
            job.handle(SlotLost(job.now, AllocationID("a0"), BROKEN))
        dump = read_dump(dump_of(job))
        assert (dump.events[-1].error, dump.events[-1].actions) == ("ZeroDivisionError", [])
        replay(dump)
    with pytest.raises(ReplayDifferenceError, match="raised ZeroDivisionError; replayed, it raised nothing"):
        replay(dump)
    job.is_replayed = False


def test_of_texts_little_is_kept_and_no_secret() -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    secret = FailureCause(
        exception_name="builtins.ValueError",
        message="s3.secret-key: abc123 'password': 'hun ter2', token=Bearer xyz "
        + "ValueError: secret=q1w2 Authorization: Basic dXNlcg hdfs://me:mine@host/path "
        + "m" * 1000,
        stacktrace="t" * 5000 + "\npassword=hunter2\nValueError: the last line",
        record="a record of somebody",
    )
    update = TaskExecutionStateUpdate(
        attempt_id=job.execution(0, 0).attempt_id,
        state=FAILED,
        timestamp_ms=0,
        cause=secret,
        accumulators={"of a user": b"bytes"},
        metrics={"numRecordsIn": 1.0},
        threads_left=("api-key=deadbeef",),
    )
    job.handle(TasksUpdated(job.now, (update,)))
    job.handle(JobFailed(job.now, secret))
    text = dump_of(job).decode()
    for hidden in (
        "abc123",
        "hun ter2",
        "hunter2",
        "xyz",
        "somebody",
        "of a user",
        "deadbeef",
        "numRecordsIn",
    ):
        assert hidden not in text, hidden
    assert "m" * 50 in text and "m" * 400 not in text and "ValueError: the last line" in text
    assert "t" * 2000 not in text and "(left out: 20 characters)" in text
    job.replay()


@pytest.mark.parametrize(
    "text",
    [
        "connect(password=b'hunter2', user='me')",
        "login(password=SecretStr('hunter2'))",
        """tokens = ["hunter2", 'hunter2']""",
        "'credentials': {'user': 'hunter2', 'other': 'hunter2'}",
        'password="hunter2 and no end',
        "s3://me:hunter2@hunter2@host/path",
    ],
)
def test_a_secret_is_not_kept_however_it_is_written(text: str) -> None:
    assert "hunter2" not in cut(f"it failed: {text} in the end")


def test_the_lines_behind_a_secret_are_kept() -> None:
    assert cut("token: it's wrong\nthe next line") == "token: ******\nthe next line"


def test_a_text_that_cannot_be_encoded_loses_no_action() -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    cause = FailureCause(exception_name="", message="no file \udce9", stacktrace="no file \udce9")
    assert "CancelTasksAction" in [type(action).__name__ for action in job.handle(JobFailed(job.now, cause))]
    job.replay()


def test_programs_and_settings_of_the_job_are_not_kept(tmp_path: Path) -> None:
    job = graph_of(SHAPES[0], tmp_path)
    job = msgspec.structs.replace(job, configuration={"fs.s3.key": "visible"}, plan={"nodes": "of the plan"})
    scheduling = Scheduling(job)
    scheduling.running(2)
    scheduling.handle(RescaleSlotsWanted(scheduling.now, job))
    programs = [
        field
        for vertex in job.vertices
        for operator in vertex.operators
        for field in msgspec.structs.asdict(operator.spec).values()
        if isinstance(field, bytes)
    ]
    text = dump_of(scheduling).decode()
    assert programs and not any(b64encode(program).decode() in text for program in programs)
    document = json.loads(text)
    for kept in (document["snapshot"]["job"], document["events"][-1]["event"]["job"]):
        assert kept["configuration"] == {} and kept["plan"] == {}
        assert kept["user_code"]["main_definitions"] == ""
        assert {len(vertex["operators"]) for vertex in kept["vertices"]} == {1}


def test_as_many_events_are_kept_as_wanted_and_no_looks_that_find_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.log = SchedulerLog(job.scheduler, job.clock, events_kept=5)
    job.running(1)
    for number in range(200):
        job.handle(IdleSlotsChecked(job.now + number))
        job.report(RUNNING)
    events = read_dump(dump_of(job)).events
    assert 5 <= len(events) <= 10
    assert [event.number for event in events] == list(range(events[0].number, 204))
    assert {type(event.event) for event in events} == {TasksUpdated}
    shown = [json.loads(each)["number"] for each in job.log.events(3)]
    assert shown == [201, 202, 203] and job.log.events(0) == ()
    monkeypatch.setattr(scheduler_log, "SHOWN_BYTES", sum(map(len, job.log.events(2))))
    assert len(job.log.events(3)) == 2
    monkeypatch.setattr(scheduler_log, "SHOWN_BYTES", 1)
    assert [json.loads(each)["number"] for each in job.log.events(3)] == [203], "the newest is always shown"
    job.replay()


def test_a_dump_is_never_longer_than_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Scheduling(linear_job(Stage(1)))
    job.running(1)
    whole = job.log.dump("why")
    assert whole is not None
    for limit, expected in ((len(whole), whole), (len(whole) - 1, None)):
        with monkeypatch.context() as patched:
            patched.setattr(scheduler_log, "DUMP_BYTES", limit)
            assert job.log.dump("why") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "the file is no dump"),
        (b'{"format": 1}', "the file is no dump"),
        (b'{"format": 2}', "has the form 2, this version of Yarrow reads the form 1"),
    ],
)
def test_what_is_no_dump_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(DumpNotReadError, match=problem):
        read_dump(data)
