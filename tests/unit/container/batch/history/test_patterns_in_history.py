"""Patterns over history by BatchTasks, then over the stream from its savepoint: the matches of the stream."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch, shuffled
from tests.support.history_program import Case, cases, history_graph, stream_results
from yarrow.cep import CEP, Pattern
from yarrow.common import Time, Types
from yarrow.datastream import DataStream, KeyedStream
from yarrow.table.expressions import col

ROW = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
SCHEMA = pa.schema([("key", pa.string()), ("number", pa.int64()), ("time", pa.int64())])


def pairs(rows: KeyedStream) -> DataStream:
    """Each row with the next one of its key, if that comes soon."""
    pattern = Pattern.begin("one").next("other").within(Time.milliseconds(40))

    def pair(match: Any) -> Any:
        return *match["one"][0], *match["other"][0]

    return CEP.pattern(rows, pattern).select(pair)


def pairs_of_columns(rows: KeyedStream) -> DataStream:
    """The same of columns."""
    columns = rows.map(tuple, ROW).to_arrow(SCHEMA).key_by("key")
    pattern = Pattern.begin("one").where(col("number") >= 0).next("other").within(Time.milliseconds(40))
    return CEP.pattern(columns, pattern).select(
        lambda match: (*tuple(match["one"][0]), *tuple(match["other"][0]))
    )


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    case=cases(),
    backend=st.sampled_from(["hashmap", "rocksdb"]),
    function=st.sampled_from([pairs, pairs_of_columns]),
)
def test_history_and_stream_have_the_matches_of_the_stream(
    case: Case, backend: str, function: Callable[[KeyedStream], DataStream]
) -> None:
    case = case._replace(function=function)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/savepoint"
        run = run_batch(history_graph(case, path), {"state.backend.type": backend}, deal=shuffled(case.seed))
        behind = [row for row in case.rows if row[2] >= case.until]
        results = run.rows() + stream_results(case, behind, path, case.until - case.delay - 1)
        expected = stream_results(case, case.rows, None, None)
        assert Counter(results) == Counter(expected)
