"""Rows in event-time order over history by BatchTasks, then over the stream from its savepoint: those of the stream."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch, shuffled
from tests.support.history_program import Case, cases, history_graph, stream_results
from yarrow.datastream import DataStream, KeyedStream


def keyed(rows: KeyedStream) -> DataStream:
    return rows.in_event_time_order()


@pytest.mark.slow
@pytest.mark.parametrize("order", [keyed])
@settings(max_examples=20, deadline=None)
@given(case=cases(), backend=st.sampled_from(["hashmap", "rocksdb"]))
def test_history_and_stream_have_the_rows_of_the_stream(order: Any, case: Case, backend: str) -> None:
    case = case._replace(function=order)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        run = run_batch(history_graph(case, path), {"state.backend.type": backend}, deal=shuffled(case.seed))
        behind = [row for row in case.rows if row[2] >= case.until]
        results = run.rows() + stream_results(case, behind, path, case.until - case.delay - 1)
        expected = stream_results(case, case.rows, None, None)
        assert Counter(results) == Counter(expected)
        for key in {row[0] for row in case.rows}:
            times = [row[2] for row in results if row[0] == key]
            assert times == sorted(times)
