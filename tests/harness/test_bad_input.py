"""Bad input that only a worker can see: each gets an error that names the thing and says what to do."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import OutputTag, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import MALFORMED_RECORDS, FileSource, MalformedPolicy
from yarrow.datastream.formats.json import JsonLinesFormat
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


def _people(tmp_path: Path, policy: MalformedPolicy) -> tuple[StreamExecutionEnvironment, str]:
    path = tmp_path / "people.jsonl"
    path.write_text(LINES)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    lines = JsonLinesFormat(PERSON, on_malformed=policy)
    source = FileSource.for_record_stream_format(lines, str(path)).build()
    people = env.from_source(source, WatermarkStrategy.no_watermarks(), "people")
    people.map(lambda person: f"person {person['name']}").print()
    if policy is MalformedPolicy.SIDE_OUTPUT:
        bad = people.get_side_output(OutputTag(MALFORMED_RECORDS))
        bad.map(lambda record: f"line {record.line} of {Path(record.file).name}").print()
    return env, str(path)


def test_a_malformed_line_fails_the_job_naming_file_and_line(tmp_path: Path) -> None:
    env, path = _people(tmp_path, MalformedPolicy.FAIL)
    with WorkerHarness(1, processes=False) as harness, pytest.raises(JobFailedInHarness) as failed:
        harness.run(env.get_job_graph())
    assert path in failed.value.cause.message
    assert "line 2" in failed.value.cause.message
    assert "on_malformed=MalformedPolicy.SKIP or SIDE_OUTPUT" in failed.value.cause.message


@pytest.mark.parametrize("policy", [MalformedPolicy.SKIP, MalformedPolicy.SIDE_OUTPUT])
def test_malformed_lines_are_counted_and_put_aside(tmp_path: Path, policy: MalformedPolicy) -> None:
    env, _ = _people(tmp_path, policy)
    aside = ["line 2 of people.jsonl"] if policy is MalformedPolicy.SIDE_OUTPUT else []
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
