"""on_error of sinks: a row that the sink refuses is left out or put aside, and the other rows are written."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.worker_harness import JobFailedInHarness, WorkerHarness
from yarrow.common import Encoder
from yarrow.common.typeinfo import Types
from yarrow.container.operators.limited_rate import LimitedRate
from yarrow.datastream import DataStream, SinkFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import RefusedRowError, Sink, SinkWriter, SinkWriterContext
from yarrow.datastream.connectors.file_sink_files import PartFile
from yarrow.datastream.connectors.file_system import BucketAssigner, FileSink
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.errors import RowFormatError
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import OperatorHarness


class Appends(SinkFunction[int]):
    def __init__(self, path: Path) -> None:
        self._path = path

    def invoke(self, value: int, context: Any) -> None:
        append(self._path, value)


def append(path: Path, value: int) -> None:
    if value % 3 == 0:
        raise ValueError(f"{value} is refused")
    with path.open("a") as file:
        file.write(f"{value}\n")


class AppendsRows(SinkWriter[int]):
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, rows: Sequence[int], timestamps: Sequence[int | None] | None) -> None:
        for index, row in enumerate(rows):
            try:
                append(self._path, row)
            except ValueError as error:
                raise RefusedRowError(index, error) from error


class TellsRows(Sink[int]):
    tells_refused_rows = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> AppendsRows:
        return AppendsRows(self._path)


class TellsNothing(TellsRows):
    tells_refused_rows = False


def program(path: Path, kind: str, policy: str, **bounds: Any) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(1, 11)), Types.INT())
    sink = numbers.add_sink(Appends(path)) if kind == "function" else numbers.sink_to(TellsRows(path))
    sink.uid("the sink").on_error(policy, **bounds)
    if policy == "dead_letter":
        sink.dead_letters().map(lambda letter: (letter.operator, letter.error, letter.encoding)).print()
    return env


@pytest.mark.parametrize("kind", ["function", "writer"])
@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_refused_rows_are_left_out_and_the_others_written(tmp_path: Path, kind: str, policy: str) -> None:
    path = tmp_path / "rows"
    with WorkerHarness(1, processes=False) as harness:
        harness.run(program(path, kind, policy).get_job_graph())
        assert path.read_text().split() == ["1", "2", "4", "5", "7", "8", "10"]
        letters = [str(("the sink", f"ValueError: {n} is refused", "typed")) for n in (3, 6, 9)]
        assert sorted(harness.output) == (letters if policy == "dead_letter" else [])
        counts = [
            value
            for metrics in harness.final_metrics.values()
            for name, value in metrics.items()
            if name.endswith("numRecordsInErrors") and value
        ]
    assert counts == [3.0]


@pytest.mark.parametrize("kind", ["function", "writer"])
def test_the_first_refused_row_fails_a_job_without_on_error(tmp_path: Path, kind: str) -> None:
    env = program(tmp_path / "rows", kind, "fail")
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="3 is refused"),
    ):
        harness.run(env.get_job_graph())


@pytest.mark.parametrize("kind", ["function", "writer"])
def test_past_a_bound_the_job_fails(tmp_path: Path, kind: str) -> None:
    env = program(tmp_path / "rows", kind, "skip", max_share=0.2)
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="failed at 3 of the latest 10 records"),
    ):
        harness.run(env.get_job_graph())


def test_a_sink_that_tells_no_rows_is_refused(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1], Types.INT())
    with pytest.raises(InvalidProgramError, match="the sink does not tell which row it refuses"):
        stream.sink_to(TellsNothing(tmp_path)).on_error("skip")
    with pytest.raises(InvalidProgramError, match="does not take its records one by one"):
        stream.print().on_error("skip")


def test_rows_that_a_limited_sink_takes_or_refuses_take_its_permits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    monkeypatch.setattr(LimitedRate, "use", lambda rate, rows, size_bytes: used.append(rows))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(1, 11)), Types.INT())
    numbers.sink_to(TellsRows(tmp_path / "rows")).on_error("skip").rate_limit(rows_per_second=1e6)
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
    assert sum(used) == 10


class ChangesAndFails(SinkFunction[dict[str, int]]):
    def invoke(self, value: dict[str, int], context: Any) -> None:
        value["n"] = 0
        raise ValueError("changed")


def test_a_letter_of_a_sink_function_holds_the_record_as_it_came() -> None:
    def fragment(stream: DataStream) -> list[DataStream]:
        return [stream.add_sink(ChangesAndFails()).on_error("dead_letter").dead_letters()]

    with OperatorHarness(fragment) as harness:
        harness.push({"n": 7})
        harness.end()
        (letter,) = harness.outputs(0)
    assert serializer_for(None).load_rows(letter.raw) == [{"n": 7}]


def test_the_bytes_of_a_limited_file_sink_take_its_permits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    monkeypatch.setattr(LimitedRate, "use", lambda rate, rows, size_bytes: used.append(size_bytes))
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection(list(range(10, 20)), Types.INT())
    sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build()
    numbers.sink_to(sink).rate_limit(bytes_per_second=1e6)
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
    assert sum(used) == 30


class HalfAndRefuses(Encoder[int]):
    """Has written a part of the row when it fails."""

    def __init__(self) -> None:
        """Not the simple encoder."""

    def encode(self, element: int, stream: Any) -> None:
        stream.write(b"%d" % element)
        if element % 3 == 0:
            # Formats of the engine refuse values by errors of its own.
            raise RowFormatError(f"{element} is refused")
        stream.write(b"\n")


class ByParity(BucketAssigner):
    def get_bucket_id(self, element: int, context: Any) -> str:
        return ("even", "odd")[element % 2]


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_rows_that_an_encoder_refuses_leave_no_byte_in_files(tmp_path: Path, policy: str) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    files = FileSink.for_row_format(str(tmp_path / "rows"), HalfAndRefuses()).with_bucket_assigner(ByParity())
    sink = env.from_collection(list(range(1, 11)), Types.INT()).sink_to(files.build()).uid("files")
    sink.on_error(policy, max_share=0.5)
    if policy == "dead_letter":
        sink.dead_letters().map(lambda letter: (letter.operator, letter.error, letter.record_type)).print()
    with WorkerHarness(1, processes=False) as harness:
        harness.run(env.get_job_graph())
        letters = [str(("files", f"RowFormatError: {n} is refused", "Integer")) for n in (3, 6, 9)]
        assert sorted(harness.output) == (letters if policy == "dead_letter" else [])
    for bucket, rows in (("even", ["2", "4", "8", "10"]), ("odd", ["1", "5", "7"])):
        (path,) = (tmp_path / "rows" / bucket).iterdir()
        assert path.read_text().split() == rows


def test_a_full_disk_is_no_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(part: PartFile, row: bytes, now: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(PartFile, "write_encoded", no_space)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    files = FileSink.for_row_format(str(tmp_path / "rows"), Encoder.simple_string_encoder()).build()
    env.from_collection([1], Types.INT()).sink_to(files).on_error("skip")
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="no space left"),
    ):
        harness.run(env.get_job_graph())


def test_past_a_bound_of_files_the_job_fails(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    files = FileSink.for_row_format(str(tmp_path / "rows"), HalfAndRefuses()).build()
    env.from_collection(list(range(1, 11)), Types.INT()).sink_to(files).on_error("skip", max_share=0.2)
    with (
        WorkerHarness(1, processes=False) as harness,
        pytest.raises(JobFailedInHarness, match="failed at 3 of the latest 10 records"),
    ):
        harness.run(env.get_job_graph())
