"""What is larger than an RPC message: graphs with much data in them, and rows that the client collects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.common import Types
from yarrow.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    ValueStateDescriptor,
)
from yarrow.datastream.state import ValueState
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.common.errors import JobExecutionError

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


class Keeps(KeyedProcessFunction[int, tuple[int, str], tuple[int, int, int]]):
    """Keeps the text of each key as state; the length of the former one, and that of this one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._text: ValueState[str] = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

    def process_element(
        self, value: tuple[int, str], ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int, int]]:
        former = self._text.value() or ""
        self._text.update(value[1])
        yield value[0], len(former), len(value[1])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_row_of_300_megabytes_crosses_workers_into_state_and_checkpoints(
    tmp_path: Path, backend: str
) -> None:
    settings = {
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": str(tmp_path),
        "state.backend.type": backend,
    }
    # A gigabyte takes five times as much of each worker: not for every machine.
    large = int(os.environ.get("YARROW_LARGE_ROW_MEBIBYTES", "300")) * _MEBIBYTE
    with mini_cluster(task_executors=2, slots=1) as cluster:
        env = cluster.get_execution_environment(settings).set_parallelism(2)
        # Each key's rows come from one subtask and go to one of several: some stay in their worker, some do not.
        rows = env.from_collection([(key, size) for size in (3, large, 7) for key in range(2)])
        texts = rows.map(
            lambda row: (row[0], "x" * (row[1] + row[0])), Types.TUPLE([Types.INT(), Types.STRING()])
        )
        with texts.key_by(lambda row: row[0], Types.INT()).process(Keeps()).execute_and_collect() as found:
            lengths = sorted(found)
    assert lengths == sorted(
        (key, former and former + key, size + key)
        for key in range(2)
        for former, size in ((0, 3), (3, large), (large, 7))
    )


def test_a_failure_with_a_message_of_megabytes_is_told_with_type_and_place() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    def fail(size: int) -> None:
        raise LookupError("first words " + "x" * size + " last words")

    env.from_collection([4 * _MEBIBYTE]).map(fail).name("fails").print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute()
    text = str(caught.value)
    assert len(text) < 10_000
    assert text.startswith("Traceback (most recent call last):")
    assert ", in fail\n" in text
    assert "LookupError: first words xxx" in text
    assert "xxx last words\n  in operator 'fails'" in text
