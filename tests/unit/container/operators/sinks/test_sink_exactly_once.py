"""A sink is killed wherever it can be: what is visible in the end is the input, each row once, and nothing is left."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.container.operators.sinks.sink_harness import KillAt, Killed, SinkJob, faults
from tests.unit.container.operators.sinks.sinks_under_test import OUTSIDES, Outside, RowFiles, Transactions
from yarrow.runtime.common.ids import JobID

ROWS = [f"row {i:03}" for i in range(40)]


def job_on(outside: Outside, parallelism: int = 2) -> SinkJob:
    return SinkJob(
        outside.sink, parallelism, release=outside.release, errors=outside.errors, given=outside.given
    )


def require_exactly_once(outside: Outside, rows: list[str] = ROWS) -> None:
    assert sorted(outside.rows()) == sorted(rows)
    assert outside.leftovers() == []


def require_order(outside: Outside) -> None:
    """Rows of each remainder modulo 2 went to one subtask: a transaction's rows follow each other."""
    for parity in range(2):
        mine = [row for row in outside.rows() if int(row[-3:]) % 2 == parity]
        assert mine == sorted(mine)


@pytest.mark.parametrize("outside_of", OUTSIDES)
@pytest.mark.parametrize("occurrence", [1, 2])
@pytest.mark.parametrize(
    "point",
    [
        "sink.before-prepare",
        "sink.after-prepare",
        "sink.before-commit",
        "sink.mid-commit",
        "sink.after-commit",
    ],
)
def test_killed_at_a_point_of_the_sink(
    tmp_path: Path, outside_of: Callable[[Path], Outside], point: str, occurrence: int
) -> None:
    outside = outside_of(tmp_path)
    job = job_on(outside)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    with faults(KillAt(point, occurrence)) as _, pytest.raises(Killed):
        job.checkpoint()
    job.kill()
    job.start()
    job.write(ROWS[:30])
    job.checkpoint()
    job.write(ROWS)
    job.end()
    require_exactly_once(outside)


@pytest.mark.parametrize("outside_of", OUTSIDES)
@pytest.mark.parametrize("completed", [False, True])
def test_killed_between_acknowledge_and_notification(
    tmp_path: Path, outside_of: Callable[[Path], Outside], completed: bool
) -> None:
    outside = outside_of(tmp_path)
    job = job_on(outside)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.write(ROWS[:25])
    if completed:
        job.complete(taken)
    job.kill()
    job.start()
    if completed and not isinstance(outside, RowFiles):
        assert sorted(outside.rows()) == ROWS[:20]
    job.write(ROWS)
    job.end()
    require_exactly_once(outside)


@pytest.mark.parametrize("outside_of", OUTSIDES)
@pytest.mark.parametrize("point", ["sink.before-commit", "sink.mid-commit", "sink.after-commit"])
def test_killed_on_restore_again_and_again(
    tmp_path: Path, outside_of: Callable[[Path], Outside], point: str
) -> None:
    outside = outside_of(tmp_path)
    job = job_on(outside)
    job.write(ROWS[:20])
    job.advance(120)
    job.complete(job.take_checkpoint())
    job.write(ROWS[:25])
    job.kill()
    for occurrence in (1, 2):
        plan = KillAt(point, occurrence)
        with faults(plan):
            try:
                job.start()
            except Killed:
                job.kill()
            else:
                # A file that was still open at the checkpoint is committed with the next one only.
                assert isinstance(outside, RowFiles)
                job.kill()
    job.start()
    job.write(ROWS)
    job.end()
    require_exactly_once(outside)


@pytest.mark.parametrize("outside_of", OUTSIDES)
def test_the_final_checkpoint_is_lost_and_repeated(
    tmp_path: Path, outside_of: Callable[[Path], Outside]
) -> None:
    outside = outside_of(tmp_path)
    job = job_on(outside)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS)
    for operator in job.subtasks:
        operator.finish()
    job.take_checkpoint()
    assert not any(operator.is_drained for operator in job.subtasks)
    job.kill()
    job.start()
    job.write(ROWS)
    job.end()
    require_exactly_once(outside)


@pytest.mark.parametrize("outside_of", OUTSIDES)
def test_rescaled(tmp_path: Path, outside_of: Callable[[Path], Outside]) -> None:
    outside = outside_of(tmp_path)
    job = job_on(outside, 2)
    for end, parallelism in ((10, 3), (20, 1), (30, 4)):
        job.write(ROWS[:end])
        job.complete(job.take_checkpoint())
        job.write(ROWS[: end + 3])
        job.kill()
        job.start(parallelism)
    job.write(ROWS)
    job.end()
    require_exactly_once(outside)


def test_order_per_key_survives_a_restart(tmp_path: Path) -> None:
    outside = Transactions(tmp_path)
    job = job_on(outside)
    for end in (7, 13, 29):
        job.write(ROWS[:end])
        job.complete(job.take_checkpoint())
        job.write(ROWS[: end + 2])
        job.kill()
        job.start()
    job.write(ROWS)
    job.end()
    require_order(outside)


def test_committing_before_completion_would_be_seen(tmp_path: Path) -> None:
    """The oracle can fail: rows that are committed with a checkpoint that is lost come twice."""
    outside = Transactions(tmp_path)
    job = job_on(outside)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    taken = job.take_checkpoint()
    job.notify(taken)
    job.kill()
    job.start()
    job.write(ROWS)
    job.end()
    assert len(outside.rows()) == len(ROWS) + 10


@pytest.mark.parametrize("outside_of", OUTSIDES)
def test_two_jobs_from_one_savepoint_do_not_harm_each_other(
    tmp_path: Path, outside_of: Callable[[Path], Outside]
) -> None:
    outside = outside_of(tmp_path)
    first = job_on(outside)
    first.write(ROWS[:10])
    savepoint = first.take_checkpoint()
    first.complete(savepoint)
    second = SinkJob(
        outside.sink,
        3,
        release=outside.release,
        job=JobID("f" * 32),
        start_from=savepoint,
        errors=outside.errors,
        given=outside.given,
    )
    first.notify(savepoint)
    second.write(ROWS[:20])
    second.kill()
    second.start()
    first.write(ROWS)
    first.end()
    second.write([*ROWS[:10], *(f"other {row}" for row in ROWS[10:])])
    second.end()
    expected = [*ROWS, *(f"other {row}" for row in ROWS[10:])]
    found = outside.rows()
    if isinstance(outside, RowFiles) and len(found) > len(expected):
        # Each of the two finishes what was still open at the savepoint: it is in the files of both.
        expected += ROWS[:10]
    assert sorted(found) == sorted(expected)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("checkpoint"), st.integers(0, 4)),
        st.tuples(st.just("kill"), st.integers(1, 4)),
        st.tuples(st.just("advance"), st.integers(1, 3)),
        st.tuples(st.just("kill in checkpoint"), st.integers(1, 9)),
    ),
    max_size=14,
)
POINTS = [
    "sink.before-prepare",
    "sink.after-prepare",
    "sink.before-commit",
    "sink.mid-commit",
    "sink.after-commit",
]


@pytest.mark.slow
@pytest.mark.parametrize("outside_of", OUTSIDES)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS, parallelism=st.integers(1, 3))
def test_any_sequence_of_rows_checkpoints_and_kills(
    outside_of: Callable[[Path], Outside], steps: list[tuple[str, int]], parallelism: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outside = outside_of(Path(folder))
        job = job_on(outside, parallelism)
        rows: list[str] = []
        for step, number in steps:
            if step == "write":
                rows += [f"row {len(rows) + i:03}" for i in range(number)]
                job.write(rows)
            elif step == "checkpoint":
                run_checkpoint(job, number)
            elif step == "advance":
                job.advance(number * 30)
            else:
                if step == "kill in checkpoint":
                    with faults(KillAt(POINTS[number % 5], 1 + number // 5)), suppress(Killed):
                        job.checkpoint()
                job.kill()
                job.start(number if step == "kill" else None)
                job.write(rows)
            visible = outside.rows()
            assert len(visible) == len(set(visible))
            assert set(visible) <= set(rows)
        job.end()
        require_exactly_once(outside, rows)


def run_checkpoint(job: SinkJob, outcome: int) -> None:
    """Complete; complete with its notification lost; aborted; neither; complete and told late."""
    taken = job.take_checkpoint()
    if outcome in (0, 1):
        job.complete(taken)
    if outcome == 0:
        job.notify(taken)
    elif outcome == 2:
        job.abort(taken)
    elif outcome == 4:
        later = job.take_checkpoint()
        job.complete(later)
        job.notify(later)
