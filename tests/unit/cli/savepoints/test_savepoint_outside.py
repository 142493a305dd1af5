"""check-savepoint --open reads what sources and sinks have stored, and makes neither reader nor writer."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from tests.unit.runtime.snapshot.memory_output import MemoryOutput
from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.cli.savepoints.savepoint_checks import answer_of
from yarrow.cli.savepoints.savepoint_report import Report, report_on, text_of
from yarrow.common import TypeInformation, Types, WatermarkStrategy
from yarrow.container.operators.sinks.sink_writing import COMMITTABLES, WRITER_STATE
from yarrow.container.operators.sources.carried_records import CARRIED, encode_carried
from yarrow.container.operators.sources.source_reader import PROGRESS, SPLITS
from yarrow.container.sources.coordinator_state import CoordinatorState, dump_state
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.base import Boundedness, Sink, Source, SourceRecords, SourceSplit
from yarrow.datastream.functions import CheckpointedFunction, SourceFunction
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph, OperatorDescriptor
from yarrow.runtime.snapshot.handles import InlineStateHandle, OperatorState, OperatorSubtaskState
from yarrow.runtime.snapshot.metadata import METADATA_FILE, encode_metadata


@dataclass
class Part(SourceSplit):
    position: int

    @property
    def split_id(self) -> str:
        return "part"


@dataclass
class Known:
    names: list[str]


@dataclass
class Reading:
    value: int


@dataclass
class Written:
    name: str


class Opaque:
    """Only pickle writes it."""

    def __reduce__(self) -> Any:
        return (Opaque, ())


class Parts(Source[str, Part]):
    boundedness = Boundedness.BOUNDED

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> NoReturn:
        raise ConnectionError("no enumerator may be made")

    def create_reader(self, context: Any) -> NoReturn:
        raise ConnectionError("no reader may be made")


class Writes(Sink[str]):
    def create_writer(self, context: Any, restored: Sequence[Any] = ()) -> NoReturn:
        raise ConnectionError("no writer may be made")

    def create_committer(self) -> NoReturn:
        raise ConnectionError("no committer may be made")


class Reads(SourceFunction[str], CheckpointedFunction):
    def __init__(self, seen: TypeInformation) -> None:
        self._seen = seen

    def initialize_state(self, context: Any) -> None:
        context.get_operator_state_store().get_list_state(ListStateDescriptor("seen", self._seen))

    def snapshot_state(self, context: Any) -> None:
        return None

    def open(self, runtime_context: Any) -> None:
        raise ConnectionError("the source must not be opened")

    def run(self, ctx: Any) -> None:
        return None

    def cancel(self) -> None:
        return None


def job(seen: TypeInformation = Types.LONG()) -> JobGraph:  # noqa: B008
    env = StreamExecutionEnvironment.get_execution_environment()
    rows = env.from_source(Parts(), WatermarkStrategy.no_watermarks(), "parts").uid("parts")
    more = env.add_source(Reads(seen), "reads").uid("reads")
    rows.union(more).sink_to(Writes()).name("writes").uid("writes")
    return env.get_job_graph("outside")


def state(
    operator: OperatorDescriptor,
    lists: dict[str, list[Any]],
    kind: TypeInformation | None = None,
    enumerator: Any = None,
) -> OperatorState:
    backend = OperatorStateBackend(operator.name)
    for name, values in lists.items():
        ask = backend.union_list_state if name in (PROGRESS, CARRIED) else backend.list_state
        ask(ListStateDescriptor(name, kind) if kind else ListStateDescriptor(name)).update(values)
    handles = backend.snapshot(1).write(MemoryOutput())
    coordinator = None
    if enumerator is not None:
        data = dump_state(CoordinatorState(1, enumerator, [(0, 1, [(0, ("splits", [Part(1)]))])]), "parts")
        coordinator = InlineStateHandle(data=data)
    return OperatorState(
        operator_id=operator.id, name=operator.name, uid=operator.uid, parallelism=1, max_parallelism=128,
        subtasks={0: OperatorSubtaskState(operator=handles)}, coordinator=coordinator,
    )  # fmt: skip


def found(folder: Path, graph: JobGraph, settings: dict[str, str] | None = None, **changed: Any) -> Report:
    """Stored with the classes of now; `changed` are those of the program that restores it."""
    operators = {each.uid: each for vertex in graph.vertices for each in vertex.operators}
    read: dict[str, list[Any]] = {
        SPLITS: [Part(5)],
        PROGRESS: [(0, 1, 3, False)],
        CARRIED: encode_carried([SourceRecords([Reading(7)], split_id="part")], 0, 1, ["part"]),
    }
    stored = (
        state(operators["parts"], read, enumerator=Known(["a"])),
        state(operators["reads"], {"seen": [1, 2]}, Types.LONG()),
        state(operators["writes"], {COMMITTABLES: [(1, Written("x"))], WRITER_STATE: [Opaque()]}),
    )
    metadata = msgspec.structs.replace(METADATA, operators=stored)
    (folder / METADATA_FILE).write_bytes(encode_metadata(metadata, b""))
    with pytest.MonkeyPatch.context() as patch:
        for name, cls in changed.items():
            if cls is None:
                patch.delattr(sys.modules[__name__], name)
            else:
                cls.__name__ = cls.__qualname__ = name
                patch.setattr(sys.modules[__name__], name, cls)
        return report_on(answer_of(graph, str(folder), Settings(settings or {}, "test"), open_functions=True))


def refusals(report: Report) -> Sequence[tuple[str, str]]:
    assert report.restorable is not any(line.outcome == "refused" for line in report.operators)
    return [(line.name, line.reason) for line in report.operators if line.outcome == "refused"]


def test_what_sources_and_sinks_have_stored_is_read_and_nothing_is_made(tmp_path: Path) -> None:
    report = found(tmp_path, job())
    assert report.notes == () and refusals(report) == []
    assert text_of(report).endswith("The program can be restored from it.")


@dataclass
class TextPosition(SourceSplit):
    position: str

    @property
    def split_id(self) -> str:
        return "part"


@dataclass
class Longer:
    name: str
    size: int


@pytest.mark.parametrize(
    ("changed", "operator", "reason"),
    [
        ({"Part": TextPosition}, "parts", r"parts', state 'source-splits'.*Part.position'.*int.*str"),
        ({"Reading": None}, "parts", r"parts', state 'source-records'.*:Reading, .*no such class"),
        ({"Known": None}, "parts", r"parts', state 'split enumerator'.*:Known, .*no such class"),
        (
            {"Written": Longer},
            "writes",
            r"writes: Writer', state 'sink-committables'.*Written.size'.*a default",
        ),
        ({"Opaque": None}, "writes", r"writes: Writer', state 'sink-writer'.*pickled.*Opaque"),
    ],
)
def test_classes_that_are_gone_or_have_changed_are_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], operator: str, reason: str
) -> None:
    report = found(tmp_path, job(), **changed)
    ((name, why),) = refusals(report)
    assert operator in name and re.search(reason, why), why


def test_states_of_a_source_function_are_compared_without_its_being_opened(tmp_path: Path) -> None:
    ((name, why),) = refusals(found(tmp_path, job(Types.STRING())))
    assert "reads" in name and "state 'seen'" in why
    assert refusals(found(tmp_path, job(Types.DOUBLE()))) == []


def test_pickles_that_are_not_trusted_are_not_read(tmp_path: Path) -> None:
    report = found(tmp_path, job(), {"security.snapshot.trust-pickle": "false"}, Opaque=None)
    assert not report.restorable and "state 'sink-writer'" in report.problems[0]
    ((name, why),) = ((line.name, line.reason) for line in report.operators if line.outcome == "refused")
    assert "writes" in name and "Opaque" not in why
