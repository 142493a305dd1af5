"""A HybridSource in a cluster: in both modes, and each record once though a worker's function fails in each source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.embedded.programs import run
from yarrow.common import Types, WatermarkStrategy
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster


def hybrid(folder: Path) -> HybridSource[str]:
    (folder / "in").mkdir()
    for part in range(4):
        (folder / "in" / f"{part}.txt").write_text(
            "".join(f"{n}\n" for n in range(part * 50, part * 50 + 50))
        )
    old = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(folder / "in")).build()
    return HybridSource.builder(old).add_source(NumberSequenceSource(200, 399)).build()


def test_each_record_comes_once_in_batch_mode(tmp_path: Path) -> None:
    """A pyspark that cannot be imported shows that the input is small enough to be read without Spark."""
    (tmp_path / "pyspark.py").write_text("raise ImportError('nobody needs it')\n")
    text = """
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
env.set_parallelism(2)
old = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in").build()
both = HybridSource.builder(old).add_source(NumberSequenceSource(200, 399)).build()
pairs = env.from_source(both, WatermarkStrategy.no_watermarks(), "both").map(
    lambda value: (int(value) // 100, int(value), 1), Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
)
pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1], a[2] + b[2])).print()
env.execute("both")
"""
    hybrid(tmp_path)
    outcome = run(tmp_path, text, PYTHONPATH=str(tmp_path))
    assert outcome.status == 0, outcome.err
    # A stream would print each step of a sum.
    found = sorted(re.sub(r"^\d+> ", "", line) for line in outcome.out.splitlines())
    assert found == [str((key, sum(range(key * 100, key * 100 + 100)), 100)) for key in range(4)]


class FailsOnce:
    """Fails at the first sight of each of these records, in all attempts together."""

    def __init__(self, folder: Path, *records: int) -> None:
        self._folder = folder
        self._records = records

    def __call__(self, value: object) -> int:
        number = int(str(value))
        if number in self._records:
            try:
                (self._folder / f"failed-{number}").touch(exist_ok=False)
            except FileExistsError:
                return number
            raise ValueError(f"record {number} fails once")
        return number


def test_each_record_comes_once_over_failures_in_each_source(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_runtime_mode(RuntimeExecutionMode.STREAMING)
    env.enable_checkpointing(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    stream = env.from_source(hybrid(tmp_path), WatermarkStrategy.no_watermarks(), "both")
    stream = stream.map(FailsOnce(tmp_path, 120, 250), Types.LONG())
    with mini_cluster(processes=False), stream.execute_and_collect() as rows:
        assert sorted(rows) == list(range(400))
    assert len(list(tmp_path.glob("failed-*"))) == 2
