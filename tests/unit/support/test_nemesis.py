"""The nemesis: schedules replay from their seed and keep their limits; a job that does not come back, loses output or
runs after its cancel is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.nemesis import Kind, Nemesis, counts, make_schedule, needed_kinds

KINDS = (Kind("kill", weight=3), Kind("kill master", limit=2), Kind("stop", lasts=True))


class Time:
    """A clock that passes when somebody pauses."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def pause(self, seconds: float) -> None:
        self.now += seconds


class Job:
    """A target that notes what is done to it."""

    def __init__(
        self,
        *,
        comes_back: bool = True,
        runs_after_cancel: bool = False,
        misses: int = 0,
        stuck: bool = False,
    ) -> None:
        self.comes_back, self.runs_after_cancel = comes_back, runs_after_cancel
        self.done: list[str] = []
        self.cancelled = False
        #: How often there is nobody to be hit; whether no checkpoint is completed after the first.
        self.misses, self.stuck = misses, stuck
        self.checkpoints = 0

    def kinds(self) -> Sequence[Kind]:
        return KINDS

    def last_checkpoint(self) -> int:
        self.checkpoints += not (self.stuck and self.checkpoints)
        return self.checkpoints

    def begin(self, kind: str) -> Callable[[], None] | None:
        if self.misses:
            self.misses -= 1
            return None
        self.done.append(kind)
        return lambda: self.done.append(f"end of {kind}")

    def heal_all(self) -> None:
        self.done.append("healed")

    def runs(self) -> bool:
        return self.runs_after_cancel if self.cancelled else self.comes_back

    def finish(self) -> None:
        self.done.append("finished")

    def cancel(self) -> None:
        self.cancelled = True

    def disturb_after_cancel(self) -> None:
        self.done.append("disturbed")


def nemesis(job: Job, said: list[str]) -> Nemesis:
    time = Time()
    return Nemesis(job, 30.0, said.append, time, time.pause)  # type: ignore[arg-type]


@given(seed=st.integers(0, 2**32), seconds=st.floats(10, 600))
def test_schedules_replay_and_keep_their_limits(seed: int, seconds: float) -> None:
    schedule = make_schedule(seed, seconds, KINDS)
    assert schedule == make_schedule(seed, seconds, KINDS)
    assert counts(schedule).get("kill master", 0) <= 2
    assert [fault.at for fault in schedule.faults] == sorted(fault.at for fault in schedule.faults)
    needed = [kind.name for kind in needed_kinds(seed, KINDS)]
    assert [fault.kind for fault in schedule.faults[: len(needed)]] == needed
    # Only what the schedule must have takes longer.
    assert all(fault.at + fault.length <= seconds + 0.1 for fault in schedule.faults[len(needed) :])
    assert all((fault.length > 0) <= (fault.kind == "stop") for fault in schedule.faults)


@given(pair=st.integers(0, 1000))
def test_an_odd_seed_and_the_next_have_every_kind(pair: int) -> None:
    found = [{kind.name for kind in needed_kinds(seed, KINDS)} for seed in (2 * pair + 1, 2 * pair + 2)]
    assert found[0] | found[1] == {kind.name for kind in KINDS} and not found[0] & found[1]


def test_a_fault_that_meets_nobody_is_tried_until_it_hits() -> None:
    job = Job(misses=5)
    ran = nemesis(job, [])
    schedule = make_schedule(3, 20.0, KINDS)
    ran.run(schedule)
    assert ran.hits == counts(schedule)


@pytest.mark.parametrize("job", [Job(misses=10**6), Job(stuck=True)], ids=["nobody is hit", "no checkpoint"])
def test_a_plan_does_not_count_without_hits_and_checkpoints_between_them(job: Job) -> None:
    with pytest.raises(AssertionError, match="the plan does not count"):
        nemesis(job, []).run(make_schedule(3, 20.0, KINDS))
    assert job.done[-1] == "healed"


def test_all_is_done_said_and_healed() -> None:
    job, said = Job(), list[str]()
    schedule = make_schedule(3, 60.0, KINDS)
    nemesis(job, said).run(schedule)
    begun = [done for done in job.done if done in {kind.name for kind in KINDS}]
    assert begun == [fault.kind for fault in schedule.faults] and len(begun) >= 5
    assert {done for done in job.done if done.startswith("end of")} == {f"end of {kind}" for kind in begun}
    assert job.done[-2:] == ["healed", "finished"]
    assert "seed 3" in said[0] and str(schedule.faults[-1]) in said[0]


def test_a_job_that_does_not_come_back_is_found() -> None:
    job = Job(comes_back=False)
    with pytest.raises(AssertionError, match=r"does not run 30 s after"):
        nemesis(job, []).run(make_schedule(1, 20.0, KINDS))
    assert job.done[-1] == "healed"


def test_a_job_that_runs_after_its_cancel_is_found() -> None:
    schedule = make_schedule(1, 20.0, KINDS)
    job = Job()
    nemesis(job, []).run(schedule, then_cancel=True)
    assert job.done[-1] == "disturbed"
    with pytest.raises(AssertionError, match="though it was cancelled"):
        nemesis(Job(runs_after_cancel=True), []).run(schedule, then_cancel=True)
