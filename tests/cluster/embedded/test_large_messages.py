"""What is larger than an RPC message: graphs with much data in them, and rows that the client collects."""

from __future__ import annotations

import pytest

from yarrow.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.cluster
_MEBIBYTE = 1 << 20


def test_a_graph_above_the_message_limit_runs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    texts = [f"{number:06d}" * 2000 for number in range(1000)]
    with env.from_collection(texts).map(len).execute_and_collect() as lengths:
        assert sum(lengths) == sum(map(len, texts)) > 10 * _MEBIBYTE


def test_a_row_above_the_message_limit_reaches_the_client_between_small_ones() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    sizes = [1, 12 * _MEBIBYTE, 2, 3]
    with env.from_collection(sizes).map(lambda size: b"x" * size).execute_and_collect() as rows:
        assert [len(row) for row in rows] == sizes
