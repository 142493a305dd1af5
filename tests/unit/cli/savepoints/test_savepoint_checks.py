"""check-savepoint says what a restore would say, before anything is deployed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.unit.runtime.snapshot.test_assignment import (
    channel,
    finished,
    job_of,
    keyed_part,
    metadata_of,
    operator_of,
)
from tests.unit.runtime.snapshot.test_trust import PICKLED, SECRET, snapshot
from yarrow.cli.savepoints.savepoint_checks import answer_of
from yarrow.cli.savepoints.savepoint_report import Report, report_on, text_of
from yarrow.common import TypeInformation, Types
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.functions import (
    CheckpointedFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorSubtaskState
from yarrow.runtime.snapshot.metadata import METADATA_FILE, encode_metadata
from yarrow.state_processor import OperatorTransformation, SavepointWriter


def report(
    folder: Path,
    metadata: CheckpointMetadata,
    job: JobGraph,
    secret: bytes = b"",
    settings: Mapping[str, str] | None = None,
) -> Report:
    keys = {f"security.snapshot.{key}": value for key, value in (settings or {}).items()}
    (folder / METADATA_FILE).write_bytes(encode_metadata(metadata, secret))
    return report_on(answer_of(job, str(folder), Settings(keys, "test")))


def test_records_in_flight_that_nobody_could_own_are_refused(tmp_path: Path) -> None:
    job = job_of(3, PartitionerKind.CUSTOM)
    subtasks = {index: OperatorSubtaskState(channels=(channel(index, job=job),)) for index in range(2)}
    metadata = msgspec.structs.replace(metadata_of(operator_of(2, subtasks)), job_id=job.job_id)
    with pytest.raises(SavepointMismatchError) as refused:
        assign(metadata, job)
    found = report(tmp_path, metadata, job)
    assert not found.restorable
    assert [(line.outcome, line.reason) for line in found.operators] == [
        ("is new", ""), ("refused", str(refused.value)),
    ]  # fmt: skip
    assert "1 of 2 operators keep the program from being restored." in text_of(found)
    at_two = job_of(2, PartitionerKind.CUSTOM)
    assert report(tmp_path, metadata, at_two).restorable


def test_operators_that_have_finished_are_refused_where_others_would_feed_them(tmp_path: Path) -> None:
    metadata = metadata_of(finished(1, (0,)))
    found = report(tmp_path, metadata, job_of(1))
    assert not found.restorable and "'operator 0', which it reads" in text_of(found)
    assert report(tmp_path, metadata_of(finished(0, (0,)), finished(1, (0,))), job_of(1)).restorable


def test_a_parallelism_above_the_max_parallelism_of_state_is_refused(tmp_path: Path) -> None:
    state = operator_of(1, {0: keyed_part([1, 2], KeyGroupRange(0, 127))})
    found = report(tmp_path, metadata_of(state), job_of(200, maximum=256))
    assert not found.restorable and "above the max parallelism 128" in text_of(found)


def test_pickles_that_would_not_be_read_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    metadata, job = snapshot(PICKLED), job_of(1)
    (state,) = metadata.operators
    state = msgspec.structs.replace(state, operator_id=job.vertices[1].operators[0].id)
    metadata = msgspec.structs.replace(metadata, operators=(state,))
    assert report(tmp_path, metadata, job).restorable
    with_secret = {"secret-file": str(secret)}
    for settings in (with_secret, {"trust-pickle": "false"}):
        found = report(tmp_path, metadata, job, settings=settings)
        assert not found.restorable and "operator 'counting', state 'seen'" in found.problems[0]
        assert f"  refused: {found.problems[0]}" in text_of(found)
        assert text_of(found).endswith("The program cannot be restored from it.")
    assert report(tmp_path, metadata, job, SECRET, with_secret).restorable
    secret.unlink()
    found = report(tmp_path, metadata, job, SECRET, with_secret)
    assert found.restorable and "was not checked" in found.notes[0] and found.notes[0] in text_of(found)


def first_of(row: Any) -> Any:
    return row[0]


def reduced(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    return rows.key_by(first_of, key_type).reduce(lambda one, other: other)


def aggregated(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    return rows.key_by(first_of, key_type).sum(1)


def processed(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    return rows.key_by(first_of, key_type).process(Totals(Types.LONG(), Types.LONG()))


class Rich(MapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def map(self, value: Any) -> Any:
        return value


def mapped(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    return rows.key_by(first_of, key_type).map(Rich())


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process_element1(self, value: Any, ctx: Any) -> None:
        return None

    def process_element2(self, value: Any, ctx: Any) -> None:
        return None


def connected(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    return rows.connect(rows.map(lambda row: row)).key_by(first_of, first_of, key_type).process(Both())


class Rules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> None:
        return None

    def process_broadcast_element(self, value: Any, ctx: Any) -> None:
        return None


def with_rules(rows: DataStream, key_type: TypeInformation | None) -> DataStream:
    rules = rows.map(lambda row: row).broadcast(MapStateDescriptor("rules", Types.STRING(), Types.LONG()))
    return rows.key_by(first_of, key_type).connect(rules).process(Rules())


class Totals(KeyedProcessFunction[str, Any, Any], CheckpointedFunction):
    """Registers a keyed state and one of the operator."""

    closed: ClassVar[list[str]] = []

    def __init__(self, total: TypeInformation, seen: TypeInformation, fails: bool = False) -> None:
        self._total, self._seen, self._fails = total, seen, fails

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("total", self._total))
        if self._fails:
            raise ConnectionError("no database here")

    def initialize_state(self, context: Any) -> None:
        context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", self._seen))

    def snapshot_state(self, context: Any) -> None:
        return None

    def process_element(self, value: Any, ctx: Any) -> None:
        return None

    def close(self) -> None:
        Totals.closed.append("closed")


def program(total: TypeInformation, seen: TypeInformation, fails: bool = False) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_collection([("a", 1)]).key_by(lambda row: row[0])
    rows.process(Totals(total, seen, fails)).uid("op").print()
    return env.get_job_graph("totals")


@pytest.mark.parametrize(
    ("total", "seen", "problem"),
    [
        (Types.LONG(), Types.LONG(), ""),
        (Types.DOUBLE(), Types.LONG(), ""),
        (Types.STRING(), Types.LONG(), "state 'total'.*the program declares"),
        (Types.LONG(), Types.STRING(), "state 'seen'.*the program declares"),
    ],
)
def test_types_are_compared_where_functions_may_be_opened(
    tmp_path: Path, total: TypeInformation, seen: TypeInformation, problem: str
) -> None:
    begin = OperatorTransformation.bootstrap_with
    keyed = begin([("a", 5)]).key_by(lambda row: row[0])
    totals = keyed.to_state(ValueStateDescriptor("total", Types.LONG()), lambda row: row[1])
    numbers = begin([1, 2]).to_list_state(ListStateDescriptor("seen", Types.LONG()))
    made = SavepointWriter.new_savepoint(128).with_operator("op", totals, numbers)
    path, settings = made.write(f"{tmp_path}/made"), Settings({}, "test")
    graph = program(total, seen)
    unopened = report_on(answer_of(graph, path, settings))
    assert unopened.restorable and text_of(unopened).endswith("or here by --open.")
    Totals.closed.clear()
    found = report_on(answer_of(graph, path, settings, open_functions=True))
    assert Totals.closed == ["closed"] and found.notes == ()
    assert found.restorable is (problem == "")
    refused = [line.reason for line in found.operators if line.outcome == "refused"]
    if problem:
        assert re.search(problem, refused[0]) and refused[0] in text_of(found)
    else:
        assert refused == [] and text_of(found).endswith("The program can be restored from it.")


def test_a_function_that_cannot_be_opened_here_is_no_reason_against_the_savepoint(tmp_path: Path) -> None:
    numbers = OperatorTransformation.bootstrap_with([1]).to_list_state(
        ListStateDescriptor("seen", Types.LONG())
    )
    path = SavepointWriter.new_savepoint(128).with_operator("op", numbers).write(f"{tmp_path}/made")
    graph = program(Types.LONG(), Types.LONG(), fails=True)
    told = report_on(answer_of(graph, path, Settings({}, "test"), open_functions=True))
    assert told.restorable and "ConnectionError: no database here" in told.notes[0]


@pytest.mark.parametrize(
    ("stored", "declared", "restores"),
    [
        (Types.STRING(), Types.STRING(), True),
        (Types.STRING(), Types.LONG(), False),
        (Types.STRING(), Types.TUPLE([Types.STRING()]), False),
        (Types.STRING(), None, True),
        (Types.STRING(), Types.PICKLED_BYTE_ARRAY(), True),
        (None, Types.LONG(), True),
        # Its keys are texts, whatever was declared of them.
        (Types.LONG(), Types.STRING(), True),
    ],
)
@pytest.mark.parametrize("shape", [reduced, aggregated, processed, mapped, connected, with_rules])
def test_keys_of_another_type_are_refused_before_anything_is_opened(
    tmp_path: Path,
    shape: Callable[[Any, TypeInformation | None], Any],
    stored: TypeInformation | None,
    declared: TypeInformation | None,
    restores: bool,
) -> None:
    keyed = OperatorTransformation.bootstrap_with([("a", 5)]).key_by(lambda row: row[0], stored)
    totals = keyed.to_state(ValueStateDescriptor("total", Types.LONG()), lambda row: row[1])
    path = SavepointWriter.new_savepoint(128).with_operator("op", totals).write(f"{tmp_path}/made")
    env = StreamExecutionEnvironment.get_execution_environment()
    made = shape(env.from_collection([("a", 1)]), declared)
    made.name("totals").uid("op").print()
    found = report_on(answer_of(env.get_job_graph("totals"), path, Settings({}, "test")))
    assert found.restorable is restores
    (line,) = [line for line in found.operators if line.uid == "op"]
    if restores:
        assert (line.outcome, line.reason) == ("restores", "")
    else:
        assert line.outcome == "refused" and line.key_type == "String"
        for part in ("operator 'totals'", "'total'", "keys of type String", str(declared), "state_processor"):
            assert part in line.reason
        assert "at most 128, keys of String" in text_of(found) and line.reason in text_of(found)
