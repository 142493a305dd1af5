"""The graphs of a comparison: which sinks there are, how their rows tell keys, and what is changed for each mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.cli.verification.captured_graph import captured, operator_at, sinks_of, upstream_of
from yarrow.cli.verification.captured_rows import CapturedRows, KeyOfRows
from yarrow.common import Types
from yarrow.datastream import SinkFunction, StreamExecutionEnvironment
from yarrow.runtime.graph.connector_spec import SinkWriterOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import ReduceOperator
from yarrow.runtime.graph.states import JobType


class Nowhere(SinkFunction[Any]):
    def invoke(self, value: Any, context: Any) -> None:
        return None


def pairs(env: StreamExecutionEnvironment) -> Any:
    return env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.INT()]))


def keyed_program() -> JobGraph:
    env = environment(2)
    totals = pairs(env).key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
    totals.print()
    totals.filter(lambda pair: pair[1] > 0).add_sink(Nowhere()).name("kept rows")
    totals.map(lambda pair: pair[1]).print()
    return env.get_job_graph()


def test_each_kind_of_sink_is_found_and_named_once() -> None:
    graph = keyed_program()
    sinks = sinks_of(graph)
    assert sorted(sink.name for sink in sinks) == [
        "Sink: Print to Std. Out (1)", "Sink: Print to Std. Out (2)", "Sink: kept rows",
    ]  # fmt: skip


def test_rows_of_an_aggregate_tell_their_keys_as_long_as_they_stay_the_same() -> None:
    graph = keyed_program()
    keys = {sink.name: sink.key for sink in sinks_of(graph)}
    known = [key for key in keys.values() if key.is_known]
    assert len(known) == 2
    assert keys["Sink: kept rows"].is_known
    for key in known:
        function = key.function("the sink")
        assert function is not None and function(("b", 7)) == "b"


def test_columns_lead_with_their_keys() -> None:
    env = environment(1)
    schema = pa.schema([("k", pa.string()), ("l", pa.int64()), ("n", pa.int64())])
    columns = env.from_collection(
        [("a", 1, 2)], Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
    ).to_arrow(schema)
    columns.key_by("k", "l").sum("n").print()
    (sink,) = sinks_of(env.get_job_graph())
    assert sink.key == KeyOfRows(columns=2)
    function = sink.key.function("the sink")
    assert function is not None and function(("a", 1, 2)) == ("a", 1)


@pytest.mark.parametrize("mode", list(JobType))
def test_no_sink_of_the_program_is_left_and_streams_emit_last_rows(tmp_path: Path, mode: JobType) -> None:
    graph = keyed_program()
    sinks = sinks_of(graph)
    folders = [tmp_path / str(at) for at in range(len(sinks))]
    changed = captured(graph, mode, sinks, folders)
    for sink, folder in zip(sinks, folders, strict=True):
        spec = operator_at(changed, sink.place).spec
        assert isinstance(spec, SinkWriterOperator)
        made = cloudpickle.loads(spec.sink)
        assert isinstance(made, CapturedRows) and made._folder == str(folder)
    (reduced,) = [
        each.spec
        for vertex in changed.vertices
        for each in vertex.operators
        if isinstance(each.spec, ReduceOperator)
    ]
    assert reduced.last_only == (mode is JobType.STREAMING)
    assert changed.job_type is mode
    assert changed.configuration["execution.runtime-mode"] == mode.name


def test_checkpoints_restarts_and_state_of_the_program_are_left_out(tmp_path: Path) -> None:
    env = environment(
        1,
        {
            "execution.checkpointing.interval": "1 s",
            "state.backend": "rocksdb",
            "restart-strategy": "fixed-delay",
            "execution.runtime-mode": "BATCH",
            "pipeline.max-parallelism": "7",
        },
    )
    pairs(env).key_by(lambda pair: pair[0]).sum(1).print()
    graph = env.get_job_graph()
    configuration = captured(graph, JobType.STREAMING, sinks_of(graph), [tmp_path]).configuration
    assert configuration == {
        "parallelism.default": "1",
        "pipeline.max-parallelism": "7",
        "execution.runtime-mode": "STREAMING",
        "restart-strategy.type": "none",
        "state.backend.type": "hashmap",
    }


def test_all_that_reaches_a_sink_is_upstream_of_it() -> None:
    env = environment(1)
    first, second = pairs(env), pairs(env)
    first.union(second).key_by(lambda pair: pair[0]).sum(1).name("total").print()
    first.map(lambda pair: pair).name("aside").print("aside")
    graph = env.get_job_graph()
    found = {
        sink.name: [operator_at(graph, place).name for place in upstream_of(graph, sink.place)]
        for sink in sinks_of(graph)
    }
    total = next(names for names in found.values() if "total" in names)
    assert total[0] == "total" and len(total) == 3 and "aside" not in total
