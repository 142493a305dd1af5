"""The cause after the death of a task's process: with what it has told last, and without."""

from __future__ import annotations

from tests.support.batch_runner import collecting_graph
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.driver.lost_task import lost_task_cause
from yarrow.container.batch.driver.task_messages import AttemptAt, AttemptStarted
from yarrow.runtime.graph.batch.batch_plan import BatchStage
from yarrow.runtime.graph.batch.batch_planner import plan

STARTED = AttemptStarted(run=0, stage=0, subtask=1, attempt=0, pid=77, superstep=4)


def stage() -> BatchStage:
    env = environment(2)
    rows = env.from_collection([1]).rebalance().map(lambda n: n).name("add")
    return plan(collecting_graph(env, rows)).stages[1]


def test_a_death_of_which_nothing_is_known_names_the_task() -> None:
    cause = lost_task_cause(stage(), STARTED, None)
    assert "(subtask 2/2, superstep 4) has died without a word" in cause.message
    assert (cause.operator_name, cause.record) == ("", "")


def test_a_last_word_names_operator_record_and_end_behind_the_users_frames() -> None:
    last = AttemptAt(
        operator_name="add", record="7", stack='  File "job.py", line 3, in f\n', end="it crashed"
    )
    cause = lost_task_cause(stage(), STARTED, last)
    assert "has died while it ran operator 'add' with the record 7: it crashed" in cause.message
    assert cause.stacktrace.startswith('Traceback (most recent call last):\n  File "job.py", line 3, in f\n')
    assert "  while it had the record 7\n" in cause.stacktrace
    assert (cause.operator_name, cause.record) == ("add", "7")


def test_a_look_before_the_end_is_told_as_such() -> None:
    cause = lost_task_cause(stage(), STARTED, AttemptAt(operator_name="add", record=""))
    assert "has died without a word" in cause.message
    assert cause.message.endswith("When it was last looked at, it ran operator 'add'")


def test_a_long_name_and_a_deep_stack_are_cut() -> None:
    deep = '  File "job.py", line 3, in f\n' * 5_000
    last = AttemptAt(operator_name="add" * 1_000, record="7", stack=deep, end="it crashed")
    cause = lost_task_cause(stage(), STARTED, last)
    assert "characters left out" in cause.message and cause.message.endswith("it crashed")
    assert len(cause.message) < 1_100 and len(cause.stacktrace) < 12_100
    assert cause.stacktrace.startswith("Traceback (most recent call last):\n")
    assert cause.stacktrace.endswith("  while it had the record 7\n")
