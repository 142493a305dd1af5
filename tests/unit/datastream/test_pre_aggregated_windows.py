"""Windows with pre-aggregation in a program: where it stands in the plan, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.window_functions import Numbers
from tests.unit.datastream.test_windowed_streams import ROW, SECOND, STAMPED, add, rows, whole, windowed
from yarrow.common.time import Time
from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.data_stream import operator_of
from yarrow.datastream.window import (
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind
from yarrow.runtime.graph.window_spec import (
    AllTumblingWindowOperator,
    SlicedWindowOperator,
    TumblingWindowOperator,
)

SLIDING = SlidingEventTimeWindows.of(Time.seconds(2), SECOND)


def graph_of(made: DataStream) -> JobGraph:
    made.print()
    return made.get_execution_environment().get_job_graph("pre-aggregated")


def test_the_pre_aggregation_is_chained_to_the_stream_and_in_the_plan() -> None:
    made = whole().reduce(add, pre_aggregate=True)
    graph = graph_of(made)
    before = next(vertex for vertex in graph.vertices if vertex.operators[-1].name == "PreAggregation")
    assert [operator.name for operator in before.operators][-2:] == [
        "Timestamps/Watermarks",
        "PreAggregation",
    ]
    assert before.parallelism == 3
    assert before.operators[-1].description == "PreAggregation(TumblingEventTimeWindows, reduce)"
    (behind,) = [
        vertex for vertex in graph.vertices if vertex.operators[0].name == "TumblingEventTimeWindows"
    ]
    assert (behind.parallelism, behind.max_parallelism) == (1, 1)
    assert type(behind.operators[0].spec) is AllTumblingWindowOperator
    assert (
        behind.operators[0].description
        == "Window(TumblingEventTimeWindows, EventTimeTrigger, reduce), of partial values"
    )
    (edge,) = graph.inputs_of(behind.id)
    assert edge.partitioner.kind is PartitionerKind.KEY_GROUP
    assert edge.type_spec == Types.TUPLE([Types.PICKLED_BYTE_ARRAY(), ROW, ROW]).to_spec()


def test_without_the_option_nothing_stands_before_the_windows() -> None:
    made = windowed().reduce(add)
    spec: Any = operator_of(made).spec
    assert type(spec) is TumblingWindowOperator and not spec.pre_aggregated
    names = [operator.name for vertex in graph_of(made).vertices for operator in vertex.operators]
    assert "PreAggregation" not in names


def test_the_uid_follows_from_that_of_the_windows() -> None:
    made = windowed().aggregate(Numbers(), pre_aggregate=True).uid("counts")
    made.get_execution_environment().get_config().disable_auto_generated_uids()
    (found,) = [
        operator.uid
        for vertex in _with_uids(made).vertices
        for operator in vertex.operators
        if operator.name == "PreAggregation"
    ]
    assert found == "counts: PreAggregation"


def _with_uids(made: DataStream) -> JobGraph:
    node: Any = operator_of(made)
    names = iter("abcdefgh")
    while node.inputs:
        node = node.inputs[0]
        if hasattr(node, "uid") and node.name != "PreAggregation":
            node.uid = next(names)
    made.print().uid("out")
    return made.get_execution_environment().get_job_graph("pre-aggregated")


def test_types_need_not_be_pickled() -> None:
    made = windowed().reduce(add, pre_aggregate=True)
    made.get_execution_environment().get_config().disable_generic_types()
    assert graph_of(made)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_distribution_before_the_key_counts_no_more_than_without_the_option(parts: int) -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    streams = [
        env.from_collection([("a", 1)], ROW).assign_timestamps_and_watermarks(STAMPED).broadcast()
        for _ in range(parts)
    ]
    stream = streams[0] if parts == 1 else streams[0].union(*streams[1:])
    cut = stream.key_by(lambda row: row[0]).window(TumblingEventTimeWindows.of(SECOND))
    graph = graph_of(cut.reduce(add, pre_aggregate=True))
    kinds = {edge.partitioner.kind for edge in graph.edges}
    assert PartitionerKind.BROADCAST not in kinds


class NoMerge(Numbers):
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError


class OwnWindows(TumblingEventTimeWindows):
    pass


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "sessions": (EventTimeSessionWindows.with_gap(SECOND), None, "EventTimeSessionWindows"),
    "the machine's clock": (TumblingProcessingTimeWindows.of(SECOND), None, "TumblingProcessingTimeWindows"),
    "sliding by the clock": (
        SlidingProcessingTimeWindows.of(Time.seconds(2), SECOND),
        None,
        "SlidingProcessingTimeWindows",
    ),
    "global windows": (GlobalWindows.create(), None, "GlobalWindows"),
    "an assigner of one's own": (OwnWindows(1000, 0), None, "OwnWindows"),
    "a trigger": (
        TumblingEventTimeWindows.of(SECOND),
        lambda cut: cut.trigger(CountTrigger.of(2)),
        "trigger CountTrigger",
    ),
    "an evictor": (
        TumblingEventTimeWindows.of(SECOND),
        lambda cut: cut.evictor(CountEvictor.of(2)),
        "evictor CountEvictor",
    ),
}


@pytest.mark.parametrize("which", REFUSED)
def test_windows_whose_rows_must_come_singly_are_refused_by_name(which: str) -> None:
    assigner, change, named = REFUSED[which]
    for cut, call in (
        (windowed(assigner), "reduce"),
        (rows().window_all(assigner), "aggregate"),
    ):
        cut = cut if change is None else change(cut)
        with pytest.raises(InvalidProgramError, match=rf"{call}\(pre_aggregate=True\): .*{named}"):
            cut.reduce(add, pre_aggregate=True) if call == "reduce" else cut.aggregate(
                Numbers(), pre_aggregate=True
            )


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows.of(SECOND), SLIDING])
def test_a_function_whose_merge_does_nothing_is_refused(assigner: Any) -> None:
    with pytest.raises(
        InvalidProgramError, match=r"aggregate\(pre_aggregate=True\): .*merge of NoMerge returns"
    ):
        windowed(assigner).aggregate(NoMerge(), pre_aggregate=True)


def test_count_windows_are_refused() -> None:
    keyed = rows().key_by(lambda row: row[0])
    with pytest.raises(InvalidProgramError, match="CountTumblingWindowAssigner"):
        keyed.count_window(3).reduce(add, pre_aggregate=True)


def test_functions_of_all_records_have_no_such_option() -> None:
    with pytest.raises(TypeError, match="pre_aggregate"):
        windowed().process(None, pre_aggregate=True)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("assigner", "spec"),
    [(TumblingEventTimeWindows.of(SECOND), TumblingWindowOperator), (SLIDING, SlicedWindowOperator)],
)
def test_windows_with_lateness_and_a_default_trigger_are_taken(assigner: Any, spec: type) -> None:
    made = windowed(assigner).allowed_lateness(5).reduce(add, pre_aggregate=True)
    assert isinstance(operator_of(made).spec, spec)
