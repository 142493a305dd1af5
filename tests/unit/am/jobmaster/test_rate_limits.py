"""RateLimits: shares of subtasks that end, are idle and come back, and limits that are changed or refused."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.jobmaster.rate_limits import RateLimitRefusedError, limited_job, shares
from yarrow.common.values.rate_limit import UNLIMITED, RateLimit
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import JobGraph

TEN = RateLimit(rows_per_second=10, bytes_per_second=100)


def with_source(*, knows_bytes: bool = False) -> tuple[JobGraph, OperatorID]:
    job = linear_job(Stage(2), Stage(1))
    vertex = job.vertices[0]
    head = msgspec.structs.replace(vertex.head, spec=SourceOperator(source=b"", knows_bytes=knows_bytes))
    vertex = msgspec.structs.replace(vertex, operators=(head, *vertex.operators[1:]))
    return msgspec.structs.replace(job, vertices=(vertex, *job.vertices[1:])), head.id


def test_the_subtasks_that_have_rows_share_the_limit() -> None:
    half, nothing = TEN.share_of(2), RateLimit(rows_per_second=0, bytes_per_second=0)
    assert half == RateLimit(rows_per_second=5, bytes_per_second=50)
    assert shares(TEN, "ab", "") == {"a": half, "b": half}
    assert shares(TEN, "ab", "b") == {"a": TEN, "b": nothing}
    assert shares(TEN, "ab", "ab") == {"a": half, "b": half}
    assert shares(UNLIMITED, "ab", "b") == {"a": UNLIMITED, "b": UNLIMITED}
    assert shares(TEN, "", "") == {}


def test_the_job_has_the_limits_and_others_are_refused() -> None:
    job, source = with_source()
    rows = RateLimit(rows_per_second=10)
    assert limited_job(job, {source: rows}).vertices[0].head.spec.rate_limit == rows
    assert limited_job(job, {}).vertices == job.vertices
    with pytest.raises(RateLimitRefusedError, match="does not count the bytes"):
        limited_job(job, {source: TEN})
    with pytest.raises(RateLimitRefusedError, match="has no source or sink"):
        limited_job(job, {job.vertices[1].head.id: rows})
    counting, source = with_source(knows_bytes=True)
    assert limited_job(counting, {source: TEN}).vertices[0].head.spec.rate_limit == TEN
