"""Who runs a bounded job, by mode and by what its sources read; what the plan says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Configuration, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.config.options.execution import RuntimeMode
from yarrow.runtime.graph.batch.batch_plan_text import runner_line
from yarrow.runtime.graph.batch.batch_runner import InputSize, in_units, runner_of
from yarrow.runtime.graph.job_graph import decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import BatchRunner

KEY = "execution.batch.local-max-size"


@pytest.mark.parametrize(
    ("mode", "sizes", "limit", "runner", "reason"),
    [
        (RuntimeMode.BATCH, [1], 100, "SPARK", "execution.runtime-mode is BATCH"),
        (
            RuntimeMode.AUTOMATIC,
            [40, 60],
            100,
            "LOCAL",
            f"the input has 100 bytes, not more than 100 bytes ({KEY})",
        ),
        (
            RuntimeMode.AUTOMATIC,
            [40, 61],
            100,
            "SPARK",
            f"the input has 101 bytes, more than 100 bytes ({KEY})",
        ),
        (RuntimeMode.AUTOMATIC, [1, None], 100, "SPARK", "nobody knows how much source 'source 1' reads"),
        (RuntimeMode.AUTOMATIC, [0], 0, "SPARK", f"{KEY} is 0"),
    ],
)
def test_the_choice(mode: RuntimeMode, sizes: list[int | None], limit: int, runner: str, reason: str) -> None:
    inputs = [InputSize(f"source {number}", size) for number, size in enumerate(sizes)]
    assert runner_of(mode, inputs, limit) == (BatchRunner(runner), reason)


def test_sizes_as_people_write_them() -> None:
    sizes = (0, 1023, 1024, 1536, 64 << 20, 150 << 20, 5 << 40)
    assert [in_units(size) for size in sizes] == [
        "0 bytes", "1023 bytes", "1 KiB", "1.5 KiB", "64 MiB", "150 MiB", "5 TiB",
    ]  # fmt: skip


def automatic(limit: str) -> StreamExecutionEnvironment:
    return environment(settings={"execution.runtime-mode": "AUTOMATIC", KEY: limit})


def test_sources_say_how_much_they_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"x" * 600)
    (tmp_path / "b.txt").write_bytes(b"y" * 400)
    env = automatic("1000 bytes")
    env.read_text_file(str(tmp_path)).print()
    graph = decode_job_graph(encode_job_graph(env.get_job_graph(clear_transformations=False)))
    assert (graph.batch_runner, graph.batch_runner_reason) == (
        BatchRunner.LOCAL,
        f"the input has 1000 bytes, not more than 1000 bytes ({KEY})",
    )
    env.from_collection(["z"]).print()
    graph = env.get_job_graph()
    assert graph.batch_runner is BatchRunner.SPARK
    assert runner_line(graph).startswith("Runs on Spark: the input has 1019 bytes, more than")
    assert NumberSequenceSource(1, 10).estimated_bytes() == 80
    assert DataGeneratorSource(str, 3).estimated_bytes() == 300


def test_a_later_job_may_read_a_source_again() -> None:
    from yarrow.batch.dataset import ExecutionEnvironment

    env = ExecutionEnvironment(Configuration.from_dict({"execution.runtime-mode": "AUTOMATIC"}))
    first, second = (env.from_collection([1, 2, 3]) for _ in range(2))
    for numbers in (first, first, second, first):
        numbers.print_on_task_manager()
        assert env.program.get_job_graph().batch_runner is BatchRunner.LOCAL


def test_a_source_of_unknown_size_goes_to_spark() -> None:
    class Unknown(NumberSequenceSource):
        def estimated_bytes(self) -> int | None:  # type: ignore[override]
            return None

    env = automatic("1 gb")
    env.from_source(Unknown(1, 2), WatermarkStrategy.no_watermarks(), "numbers").name("of mine").print()
    graph = env.get_job_graph()
    assert graph.batch_runner is BatchRunner.SPARK
    assert graph.batch_runner_reason == "nobody knows how much source 'Source: of mine' reads"


def test_columns_stay_in_python_without_spark(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from yarrow.datastream.connectors.file_system import FileSource
    from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
    from yarrow.runtime.graph.batch.batch_planner import plan

    pq.write_table(pa.table({"key": [1, 2], "value": [3, 4]}), tmp_path / "a.parquet")
    env = automatic("1 mb")
    source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), str(tmp_path)).build()
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "columns")
    rows.key_by("key").aggregate([("value", "sum")]).print()
    (scan, *_) = plan(env.get_job_graph()).stages
    assert scan.sql is None and scan.no_sql == "the job runs without Spark"
