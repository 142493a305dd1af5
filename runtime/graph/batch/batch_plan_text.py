"""What the plan of a bounded job says to people: lines for `yarrow info`, and fields of the plan in REST. Pure.

Owner: any thread. Must not decide anything: the plan has decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from yarrow.runtime.graph.batch.batch_plan import (
    BatchExchange,
    BatchPlan,
    BatchStage,
    Combining,
    ExchangeKind,
    InputOrder,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner

_ORDERS: Final[Mapping[InputOrder, str]] = {
    InputOrder.AS_READ: "as it comes",
    InputOrder.BY_PLACE: "sorted by producer and position",
    InputOrder.BY_TIME: "sorted by key group and time",
    InputOrder.BY_INPUT: "one input after the other",
    InputOrder.BY_KEY: "sorted by key and time",
}
_KINDS: Final[Mapping[ExchangeKind, str]] = {
    ExchangeKind.FORWARD: "without a shuffle",
    ExchangeKind.REBALANCE: "dealt out",
    ExchangeKind.KEYED: "by key group",
    ExchangeKind.BROADCAST: "all rows to each task",
    ExchangeKind.GLOBAL: "all rows to one task",
}
#: Flink's word for a result that is complete before it is read.
_BLOCKING: Final = "blocking"


def runner_line(graph: JobGraph) -> str:
    """Who runs a bounded job, and why."""
    where = (
        "on Spark"
        if graph.batch_runner is BatchRunner.SPARK
        else "in workers of a TaskExecutor, without Spark"
    )
    return f"Runs {where}: {graph.batch_runner_reason}"


def lines_of(plan: BatchPlan) -> Iterator[str]:
    """The plan as text: each stage with what it reads, in which order, and where its rows go."""
    numbers = {stage.vertex_id: number for number, stage in enumerate(plan.stages, 1)}
    for stage in plan.stages:
        yield f"Stage {numbers[stage.vertex_id]}: {stage.name} (parallelism {stage.parallelism})"
        if stage.is_source:
            yield f"    reads: {_source(stage)}"
        for exchange in stage.inputs:
            yield f"    reads: stage {numbers[exchange.source]}, {_KINDS[exchange.kind]}"
        if stage.inputs:
            yield f"    order: {_ORDERS[stage.order]}"
        for exchange in stage.outputs:
            if exchange.combining_note:
                yield f"    to stage {numbers[exchange.target]}: {combining_text(exchange)}"
    for iteration in plan.iterations:
        stages = ", ".join(str(numbers[vertex_id]) for vertex_id in iteration.body)
        most = iteration.control.max_iterations
        yield f"Iteration '{iteration.control.name}': stages {stages}, {most} times at most"


def _source(stage: BatchStage) -> str:
    if stage.sql is not None:
        filters = "" if stage.sql.condition is None else ", filters their rows"
        return f"results of Spark SQL, which reads the files{filters} and aggregates their columns"
    note = f"; the reader {stage.scan_note}" if stage.scan_note else ""
    return (
        f"splits of the source, in Python: {stage.no_sql}{note}"
        if stage.no_sql
        else f"splits of the source{note}"
    )


def combining_text(exchange: BatchExchange) -> str:
    """What happens to the rows of a keyed exchange before they are sent, and why."""
    if exchange.combining is None:
        return f"each row is sent: {exchange.combining_note}"
    rows = "rows" if exchange.combining is Combining.ALL else "rows without a time"
    return f"{rows} are folded before the shuffle: {exchange.combining_note}"


def with_batch_plan(job_plan: Mapping[str, Any], plan: BatchPlan) -> dict[str, Any]:
    """The plan of a JobGraph (`plan.job_plan`) with what batch mode makes of it."""
    return {**job_plan, "type": "BATCH", "nodes": [_node(node, plan) for node in job_plan["nodes"]]}


def _node(node: Mapping[str, Any], plan: BatchPlan) -> dict[str, Any]:
    stage = plan.stage(node["id"])
    shown = {**node}
    if stage.is_source:
        shown["operator_strategy"] = _source(stage)
    if "inputs" in node:
        shown["inputs"] = [
            _input(shown_input, exchange, stage)
            for shown_input, exchange in zip(node["inputs"], stage.inputs, strict=True)
        ]
    return shown


def _input(shown: Mapping[str, Any], exchange: BatchExchange, stage: BatchStage) -> dict[str, Any]:
    found = {**shown, "exchange": _BLOCKING, "local_strategy": _ORDERS[stage.order]}
    if exchange.combining_note:
        found["combining"] = combining_text(exchange)
    return found
