"""Joins over history by BatchTasks, then over the stream from its savepoint, are those of the stream alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch, shuffled
from tests.support.history_program import Case, cases, history_graph, stream_results
from yarrow.common import Time
from yarrow.datastream import DataStream, KeyedStream, ProcessJoinFunction


class Pairs(ProcessJoinFunction[Any, Any, Any]):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right, ctx.get_timestamp()


def inner(rows: KeyedStream) -> DataStream:
    return rows.interval_join(rows).between(Time.milliseconds(-6), Time.milliseconds(-1)).process(Pairs())


def outer(rows: KeyedStream) -> DataStream:
    joined = rows.interval_join(rows).between(Time.milliseconds(1), Time.milliseconds(9))
    return joined.full_outer().process(Pairs())


def as_of(rows: KeyedStream) -> DataStream:
    versions = rows.filter(lambda row: row[1] % 2 == 0).key_by(lambda row: row[0])
    return rows.as_of_join(versions).nearest(Time.milliseconds(5)).left_outer().process(Pairs())


def delayed(rows: KeyedStream) -> DataStream:
    return rows.delayed_join(rows).after(Time.milliseconds(7)).process(Pairs())


@pytest.mark.slow
@pytest.mark.parametrize("join", [inner, outer, as_of, delayed])
@settings(max_examples=8, deadline=None)
@given(case=cases(), backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_history_and_stream_have_the_pairs_of_the_stream(join: Any, case: Case, backend: str) -> None:
    case = case._replace(function=join)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        run = run_batch(history_graph(case, path), {"state.backend.type": backend}, deal=shuffled(case.seed))
        behind = [row for row in case.rows if row[2] >= case.until]
        results = run.rows() + stream_results(case, behind, path, case.until - case.delay - 1)
        assert Counter(results) == Counter(stream_results(case, case.rows, None, None))
