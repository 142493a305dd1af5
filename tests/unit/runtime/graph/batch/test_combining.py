"""Which keyed exchanges fold rows before they are sent, why not, and how the plan shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.cli.run_command import print_stages
from yarrow.common import Types
from yarrow.container.operators.registry import build_operator
from yarrow.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_plan import BatchExchange, Combining, ExchangeKind, InputOrder
from yarrow.runtime.graph.batch.batch_plan_text import lines_of
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph


def first(one: Any, other: Any) -> Any:
    return one


class Opens(ReduceFunction[Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        pass

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1


class Passes(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


def program(step: Callable[[KeyedStream], DataStream]) -> StreamExecutionEnvironment:
    env = environment(2)
    pairs = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    step(pairs.name("pairs").key_by(lambda pair: pair[0])).print()
    return env


def keyed_exchange(graph: JobGraph, **options: Any) -> BatchExchange:
    (found,) = [
        exchange
        for stage in plan(graph, **options).stages
        for exchange in stage.inputs
        if exchange.kind is ExchangeKind.KEYED
    ]
    return found


@pytest.mark.parametrize(
    ("step", "combining", "why"),
    [
        (lambda keyed: keyed.sum(1), Combining.ALL, "sum"),
        (lambda keyed: keyed.max_by(1), Combining.ALL, "max_by"),
        (lambda keyed: keyed.reduce(first), Combining.UNTIMED, "commutes=True"),
        (lambda keyed: keyed.reduce(first, commutes=True), Combining.ALL, "commutes"),
        (lambda keyed: keyed.reduce(Opens(), commutes=True), None, "open()"),
        (
            lambda keyed: keyed.reduce(first, commutes=True).on_error("skip"),
            None,
            "on_error of 'Keyed Reduce'",
        ),
        (lambda keyed: keyed.process(Passes()), None, "'KeyedProcess' is no rolling aggregate"),
        (lambda keyed: keyed.map(str), None, "'Map' is no rolling aggregate"),
    ],
)
def test_the_plan_says_what_is_folded_and_why(
    step: Callable[[KeyedStream], DataStream], combining: Combining | None, why: str
) -> None:
    found = keyed_exchange(program(step).get_job_graph())
    assert found.combining is combining
    assert why in found.combining_note


def test_aggregates_of_columns_are_folded() -> None:
    env = environment(2)
    rows = env.from_collection([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()]))
    columns = rows.to_arrow(pa.schema([("key", pa.string()), ("number", pa.int64())]))
    columns.key_by("key").aggregate([("number", "sum"), (None, "count")]).print()
    found = keyed_exchange(env.get_job_graph())
    assert (found.combining, found.combining_note) == (Combining.ALL, "sum, count")


def test_an_option_switches_it_off() -> None:
    env = program(lambda keyed: keyed.sum(1))
    graph = env.get_job_graph()
    assert keyed_exchange(graph, combine=False).combining is None
    assert "execution.batch.combine is false" in keyed_exchange(graph, combine=False).combining_note


def test_exchanges_without_keys_have_no_question() -> None:
    env = environment(2)
    env.from_collection([1]).rebalance().map(str).print()
    notes = [
        exchange.combining_note for stage in plan(env.get_job_graph()).stages for exchange in stage.inputs
    ]
    assert set(notes) == {""}


@pytest.mark.parametrize(
    ("step", "order"),
    [
        (lambda keyed: keyed.sum(1), InputOrder.BY_TIME),
        (lambda keyed: keyed.process(Passes()), InputOrder.BY_KEY),
    ],
)
def test_the_order_in_the_plan_is_that_of_the_operator(
    step: Callable[[KeyedStream], DataStream], order: InputOrder
) -> None:
    graph = program(step).get_job_graph()
    keyed = plan(graph).stages[1]
    assert keyed.order is order
    operator = build_operator(graph.vertex(keyed.vertex_id).head)
    assert operator.mixes_keys is (order is InputOrder.BY_TIME)
    assert plan(graph).stages[0].order is InputOrder.AS_READ


def test_the_plan_as_text() -> None:
    graph = program(lambda keyed: keyed.sum(1).rebalance().map(str)).get_job_graph()
    source, keyed, last = graph.vertices
    assert list(lines_of(plan(graph))) == [
        f"Stage 1: {source.name} (parallelism {source.parallelism})",
        "    reads: splits of the source",
        "    to stage 2: rows are folded before the shuffle: sum",
        f"Stage 2: {keyed.name} (parallelism 2)",
        "    reads: stage 1, by key group",
        "    order: sorted by key group and time",
        f"Stage 3: {last.name} (parallelism 2)",
        "    reads: stage 2, dealt out",
        "    order: sorted by producer and position",
    ]


def test_info_prints_the_stages_under_the_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    graph = program(lambda keyed: keyed.sum(1)).get_job_graph()
    print_stages(graph, Settings({"execution.batch.combine": "false"}, "the command"))
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "------------------------- Batch Plan -------------------------"
    assert "    to stage 2: each row is sent: execution.batch.combine is false" in printed


def test_the_plan_of_rest_says_it_too() -> None:
    env = program(lambda keyed: keyed.reduce(first, commutes=True))
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    shown = env.get_job_graph().plan
    assert shown["type"] == "BATCH"
    source, keyed = shown["nodes"]
    assert source["operator_strategy"] == "splits of the source"
    (read,) = keyed["inputs"]
    assert read["exchange"] == "blocking"
    assert read["ship_strategy"] == "HASH"
    assert read["local_strategy"] == "sorted by key group and time"
    assert read["combining"] == "rows are folded before the shuffle: reduce, whose function commutes"
