"""Bad input that only a worker can see: each gets an error that names the thing and says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import OutputTag, StreamExecutionEnvironment
from yarrow.datastream.connectors import DEAD_LETTERS
from yarrow.datastream.connectors.file_system import FileSource
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.graph.job_graph import JobGraph, UserCode

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
LINES = '{"name": "ann", "age": 31}\n{"name": "bob", "age": \n{"name": "cid", "age": 7}\n'


def _graph_with(code: dict[str, object]) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.from_collection([1]).print()
    graph = env.get_job_graph()
    user_code: UserCode = msgspec.structs.replace(graph.user_code, **code)
    return msgspec.structs.replace(graph, user_code=user_code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ({"required_modules": ("no_such_module",)}, r"needs module 'no_such_module'.*add_python_file"),
        ({"python_version": (3, 9)}, r"built with Python 3\.9.*use the same minor version"),
    ],
)
def test_a_worker_that_cannot_run_the_code_says_why(code: dict[str, object], message: str) -> None:
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match=f"(?s){message}"),
    ):
        harness.run(_graph_with(code))


def _people(
    tmp_path: Path, policy: str, lines: str = LINES, **bounds: Any
) -> tuple[StreamExecutionEnvironment, str]:
    path = tmp_path / "people.jsonl"
    path.write_text(lines)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    builder = FileSource.for_record_stream_format(JsonLinesFormat(PERSON), str(path))
    source = builder.on_error(policy, **bounds).build()
    people = env.from_source(source, WatermarkStrategy.no_watermarks(), "people").uid("people of files")
    people.map(lambda person: f"person {person['name']}").print()
    if policy == "dead_letter":
        bad = people.get_side_output(OutputTag(DEAD_LETTERS))
        bad.map(
            lambda letter: f"line {letter.position} of {Path(letter.split).name}: {letter.operator}"
        ).print()
    return env, str(path)


def test_a_malformed_line_fails_the_job_naming_file_and_line(tmp_path: Path) -> None:
    env, path = _people(tmp_path, "fail")
    with WorkerHarness(1, processes=False) as harness, pytest.raises(JobFailedInHarness) as failed:
        harness.run(env.get_job_graph())
    assert path in failed.value.cause.message
    assert "line 2" in failed.value.cause.message
    assert 'on_error("skip") or on_error("dead_letter")' in failed.value.cause.message


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_malformed_lines_are_counted_and_put_aside(tmp_path: Path, policy: str) -> None:
    env, _ = _people(tmp_path, policy)
    aside = ["line 2 of people.jsonl: people of files"] if policy == "dead_letter" else []
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
        assert sorted(harness.output) == sorted(["person ann", "person cid", *aside])
        counts = [
            value
            for metrics in harness.final_metrics.values()
            for name, value in metrics.items()
            if name.endswith("numRecordsInErrors")
        ]
    assert counts == [1.0]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ({"max_share": 0.3}, r"'Source: people' could not read 1 of the latest 3 records.*max_share=0.3"),
        (
            {"max_per_minute": 0},
            r"'Source: people' could not read 1 records within a minute.*max_per_minute=0",
        ),
    ],
)
def test_past_its_bound_the_job_fails(tmp_path: Path, bounds: dict[str, Any], expected: str) -> None:
    env, _ = _people(tmp_path, "dead_letter", **bounds)
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match=f"(?s){expected}"),
    ):
        harness.run(env.get_job_graph())


@pytest.mark.parametrize("bounds", [{}, {"max_share": 0.3}, {"max_per_minute": 12}])
def test_rows_of_a_damaged_block_count_one_by_one(tmp_path: Path, bounds: dict[str, Any]) -> None:
    options: dict[str, Any] = {"row_group_size": 10, "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(
        pa.table({"n": [f"{n}" for n in range(100, 130)]}), tmp_path / "in", compression="none", **options
    )
    damaged = bytearray((tmp_path / "in").read_bytes())
    damaged[damaged.find(b"115")] ^= 1
    (tmp_path / "in").write_bytes(damaged)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    builder = FileSource.for_bulk_file_format(
        ParquetColumnarRowInputFormat(pa.schema([("n", pa.int64())])), str(tmp_path / "in")
    )
    source = builder.on_error("skip", **bounds).build()
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").to_rows().map(
        lambda row: str(row.n)
    ).print()
    with WorkerHarness(1, processes=False) as harness:
        if "max_share" in bounds:
            with pytest.raises(JobFailedInHarness, match="could not read 10 of the latest 30 records"):
                harness.run(env.get_job_graph())
            return
        harness.run(env.get_job_graph())
        assert sorted(harness.output) == [str(n) for n in range(100, 130) if n // 10 != 11]
        counts = [
            value
            for metrics in harness.final_metrics.values()
            for name, value in metrics.items()
            if name.endswith("numRecordsInErrors")
        ]
    assert counts == [10.0]


def test_below_its_bound_the_job_goes_on(tmp_path: Path) -> None:
    env, _ = _people(tmp_path, "skip", max_share=0.4, max_per_minute=1)
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
        assert sorted(harness.output) == ["person ann", "person cid"]
