"""RunningRates: the tasks that run share the limits, whatever the plan has of them."""

from __future__ import annotations

from tests.unit.am.jobmaster.test_rate_limits import TEN, with_source
from yarrow.am.jobmaster.rate_limits import limited_job
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.container.batch.driver.running_rates import RunningRates


def test_running_tasks_share_the_limit() -> None:
    job, source = with_source(knows_bytes=True)
    vertex = job.vertices[0].id
    rates: RunningRates[str] = RunningRates()
    rates.plan(limited_job(job, {source: TEN}))
    rates.started(vertex, "a")
    assert rates.shares_of(vertex) == {source: TEN}
    rates.started(vertex, "b")
    rates.started(vertex, "b")
    assert rates.shares_of(vertex) == {source: TEN.share_of(2)}
    assert sorted(rates.running(vertex)) == ["a", "b"]
    rates.ended(vertex, "a")
    rates.ended(vertex, "a")
    assert rates.shares_of(vertex) == {source: TEN}
    assert rates.running(vertex) == ("b",)


def test_only_sources_and_sinks_with_a_limit_have_shares() -> None:
    job, source = with_source()
    rates: RunningRates[str] = RunningRates()
    rates.plan(job)
    assert [rates.shares_of(vertex.id) for vertex in job.vertices] == [{}, {}]
    assert rates.limited_vertices() == []
    one = RateLimit(rows_per_second=1)
    rates.change({source: one})
    assert rates.limited_vertices() == [job.vertices[0].id]
    rates.change({source: UNLIMITED})
    # Running tasks have to hear of it.
    assert rates.shares_of(job.vertices[0].id) == {source: UNLIMITED}


def test_a_change_before_the_plan_is_known_holds() -> None:
    job, source = with_source()
    rates: RunningRates[str] = RunningRates()
    three = RateLimit(rows_per_second=3)
    rates.change({source: three})
    rates.plan(limited_job(job, {source: RateLimit(rows_per_second=7)}))
    assert rates.shares_of(job.vertices[0].id) == {source: three}
