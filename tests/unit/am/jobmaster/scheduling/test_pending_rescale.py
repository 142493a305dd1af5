"""PendingRescale: forth, back once, and forth again."""

from __future__ import annotations

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN
from yarrow.am.jobmaster.scheduling.pending_rescale import PendingRescale
from yarrow.am.jobmaster.scheduling.slot_pool import SlotPool
from yarrow.runtime.graph.job_graph import JobGraph

NARROW, WIDE = linear_job(Stage(1)), linear_job(Stage(2))


def following(rescale: PendingRescale) -> JobGraph | None:
    """What the job becomes, asked anew at each call."""
    return rescale.next_job


def test_a_job_that_runs_so_does_not_go_back() -> None:
    rescale = PendingRescale(SlotPool(idle_timeout=50))
    rescale.begins(WIDE)
    assert following(rescale) is WIDE
    assert rescale.replaced(NARROW) is None
    assert following(rescale) is None and rescale.awaits_all_running
    rescale.all_run()
    rescale.failed(BROKEN)
    assert following(rescale) is None


def test_a_job_that_fails_before_all_run_goes_back_once() -> None:
    rescale = PendingRescale(SlotPool(idle_timeout=50))
    rescale.begins(WIDE)
    rescale.replaced(NARROW)
    rescale.failed(BROKEN)
    assert following(rescale) is NARROW and not rescale.awaits_all_running
    rescale.failed(BROKEN)
    assert following(rescale) is NARROW
    assert rescale.replaced(WIDE) is BROKEN
    rescale.failed(BROKEN)
    assert following(rescale) is None, "there is nothing behind what it was"


def test_a_failure_before_the_tasks_have_ended_changes_nothing() -> None:
    rescale = PendingRescale(SlotPool(idle_timeout=50))
    rescale.begins(WIDE)
    rescale.failed(BROKEN)
    assert following(rescale) is WIDE
    assert rescale.replaced(NARROW) is None
