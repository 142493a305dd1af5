"""Which run uses which time of a schedule: none overlaps another, and a missed time is made up for once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from yarrow.am.dispatcher.schedule_progress import KEPT_RUNS, ScheduleProgress
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.ids import JobID

EACH_MINUTE = Schedule.every("1 min")
MINUTE = 60_000
START = 1_700_000_000_123
JOB = JobID("ab" * 16)


def begun() -> ScheduleProgress:
    return ScheduleProgress.begun(EACH_MINUTE, START)


def run_at(progress: ScheduleProgress, now: int) -> ScheduleProgress:
    following = progress.with_run(EACH_MINUTE, JOB, now)
    assert following is not None and following.running is not None
    return following


def test_an_interval_is_due_at_once_and_a_cron_expression_at_its_time() -> None:
    assert begun().next_time == START
    nightly = Schedule.of_cron("0 3 * * *")
    assert ScheduleProgress.begun(nightly, 1000).next_time == 3 * 3_600_000


def test_a_run_that_runs_keeps_the_next_one_back() -> None:
    progress = run_at(begun(), START)
    assert progress.running is not None
    assert (progress.running.due_time, progress.running.makes_up_for) == (START, 0)
    assert progress.with_run(EACH_MINUTE, JOB, START + MINUTE) is None
    progress = progress.with_end(JobStatus.FINISHED, START + 1000)
    assert progress.with_run(EACH_MINUTE, JOB, START + MINUTE - 1) is None
    progress = run_at(progress, START + MINUTE + 50)
    assert progress.running is not None and progress.running.makes_up_for == 0
    assert (progress.runs, progress.missed, progress.next_time) == (2, 0, START + 2 * MINUTE)


def test_times_that_a_long_run_missed_are_made_up_for_by_one_run() -> None:
    progress = run_at(begun(), START).with_end(JobStatus.FAILED, START + 3 * MINUTE + 1000, "no disk")
    assert progress.ended[0].failure == "no disk"
    progress = run_at(progress, START + 3 * MINUTE + 1000)
    assert progress.running is not None
    assert (progress.running.due_time, progress.running.makes_up_for) == (START + 3 * MINUTE, 3)
    progress = progress.with_end(JobStatus.FINISHED, START + 3 * MINUTE + 2000)
    assert (progress.missed, progress.next_time) == (3, START + 4 * MINUTE)
    assert run_at(progress, START + 4 * MINUTE).missed == 3


def test_times_without_a_master_are_missed() -> None:
    progress = run_at(begun(), START).with_end(JobStatus.FINISHED, START + 10)
    taken_over = progress.under_new_master(START + 5 * MINUTE + 7)
    taken_over = run_at(taken_over, START + 5 * MINUTE + 7)
    assert taken_over.running is not None
    assert (taken_over.running.makes_up_for, taken_over.missed) == (5, 5)
    # A master that came in between misses nothing.
    assert run_at(progress.under_new_master(START + 1000), START + MINUTE).missed == 0


def test_ended_runs_are_kept_up_to_a_number() -> None:
    progress, now = begun(), START
    for _ in range(KEPT_RUNS + 5):
        progress = run_at(progress, now).with_end(JobStatus.FINISHED, now)
        now += MINUTE
    assert len(progress.ended) == KEPT_RUNS
    assert progress.ended[0].due_time == now - MINUTE


def test_a_master_that_was_away_for_years_counts_no_second_by_itself() -> None:
    each_second = Schedule.every("1 s")
    progress = ScheduleProgress.begun(each_second, START)
    now = START + 10 * 365 * 86_400_000
    following = progress.under_new_master(now).with_run(each_second, JOB, now)
    assert following is not None and following.next_time == now + 1000


@given(st.lists(st.tuples(st.integers(0, 400), st.booleans(), st.integers(0, 300)), max_size=30))
def test_each_time_is_used_once_by_a_run_or_counted_as_missed(steps: list[tuple[int, bool, int]]) -> None:
    """Over any course of waits, masters and lengths of runs: times used and times missed are all times."""
    progress, now = begun(), START
    used = 0
    for seconds, new_master, length in steps:
        now += seconds * 1000
        if new_master:
            progress = progress.under_new_master(now)
        following = progress.with_run(EACH_MINUTE, JOB, now)
        if following is None:
            assert progress.next_time > now
            continue
        assert following.running is not None and following.running.due_time <= now < following.next_time
        used += following.running.makes_up_for == 0
        now += length * 1000
        progress = following.with_end(JobStatus.FINISHED, now)
    # Those that were made up for count as missed, once each; a run in time may make up for earlier ones.
    passed = (progress.next_time - START) // MINUTE
    in_time = passed - progress.missed
    assert used <= in_time <= progress.runs
