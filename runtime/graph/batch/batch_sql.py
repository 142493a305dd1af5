"""Which columns of a bounded job Spark SQL reads and aggregates, and why the others stay in Python. Pure.

Owner: any thread. Spark SQL gets what it computes exactly as the engine's own operators do: values, types, nulls and
NaN. Results that depend on the order of rows stay in Python. Must not look into files or user code: whether the files
are what the source has declared is checked where the job runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from yarrow.common.values.conditions import AllOf, AnyCondition, Condition, comparisons_of, expressions_of
from yarrow.runtime.columns.condition_checks import values_of, why_not_compared
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage, SqlAggregation
from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline, tasks_at_a_time
from yarrow.runtime.graph.column_spec import AggregatedColumnsOperator, SqlResultsOperator
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    ColumnAggregate,
    ColumnScan,
    KeyedAggregates,
    OperatorSpec,
    PartitionerKind,
    PartitionerSpec,
)
from yarrow.runtime.graph.states import BatchRunner

if TYPE_CHECKING:
    import pyarrow as pa

#: Aggregates that columns have.
_KINDS: Final = (
    AggregateKind.SUM,
    AggregateKind.MIN,
    AggregateKind.MAX,
    AggregateKind.COUNT,
    AggregateKind.MEAN,
)

#: Bytes of files from which on Spark SQL gains from all of Java's compilers.
_MUCH: Final = 64 << 20
#: Spark's master of a driver that only commits: it has no executors, and runs no task.
_COMMITTING_MASTER: Final = "local[1]"


def decisions(graph: JobGraph) -> Mapping[JobVertexID, SqlAggregation | str]:
    """For each source that emits columns of files: what Spark SQL does in its place, or why it does nothing."""
    found: dict[JobVertexID, SqlAggregation | str] = {}
    scans = [vertex for vertex in graph.vertices if vertex.head.spec.column_scan is not None]
    if scans and not Settings(graph.configuration, "the job").get(batch.SPARK_SQL):
        return dict.fromkeys((vertex.id for vertex in scans), f"{batch.SPARK_SQL.key} is false")
    if graph.batch_runner is BatchRunner.LOCAL:
        return dict.fromkeys((vertex.id for vertex in scans), "the job runs without Spark")
    parallelism = 0
    for vertex in scans:
        decision = _decision(graph, vertex)
        if not isinstance(decision, str):
            # All exchanges inside one Spark job have the same number of partitions.
            parallelism = parallelism or vertex.parallelism
            if vertex.parallelism != parallelism:
                decision = (
                    f"another scan of the job has parallelism {parallelism}, this one {vertex.parallelism}"
                )
        found[vertex.id] = decision
    return found


def driver_configuration(graph: JobGraph, commits_only: bool = False) -> dict[str, str]:
    """The job's configuration for a SparkDriver, with what Java has to know before the driver plans the job.

    `commits_only`: a former driver has executed the plan. Commits run in the driver, which waits for no executor.
    """
    # Stages of a pipeline are Spark SQL throughout.
    much = is_pipeline(graph) or _bytes_for_sql(graph) >= _MUCH
    return {
        # Executors on YARN are asked for accordingly.
        "spark.default.parallelism": str(tasks_at_a_time(graph)),
        # YARN's list of applications, and Spark's own pages, show it.
        "spark.app.name": graph.name,
        **({batch.SPARK_FULL_COMPILER.key: "true"} if much else {}),
        **graph.configuration,
        **({batch.SPARK_MASTER.key: _COMMITTING_MASTER} if commits_only else {}),
    }


def _bytes_for_sql(graph: JobGraph) -> int:
    """Bytes of the files that Spark SQL may read, as far as this can be told without a look at their columns."""
    if not Settings(graph.configuration, "the job").get(batch.SPARK_SQL):
        return 0
    return sum(
        scan.size
        for vertex in graph.vertices
        if (scan := vertex.head.spec.column_scan) is not None
        and not isinstance(_aggregation_behind(graph, vertex, scan), str)
    )


def _decision(graph: JobGraph, vertex: JobVertex) -> SqlAggregation | str:
    scan = vertex.head.spec.column_scan
    assert scan is not None, "the source reads files of columns"
    found = _aggregation_behind(graph, vertex, scan)
    if isinstance(found, str):
        return found
    schema = _schema(scan.schema)
    why = why_inexact(schema, found.aggregates)
    if not why and found.condition is not None:
        why = _why_other_rows(schema, found.condition)
    return why or found


def _aggregation_behind(graph: JobGraph, vertex: JobVertex, scan: ColumnScan) -> SqlAggregation | str:
    """The built-in aggregates that alone read the files' rows, perhaps filtered ones, or why there are none."""
    if scan.file_format != "parquet":
        return f"{scan.file_format.upper()} files are parsed by the engine's own rules"
    if vertex.head.spec.rate_limit.limits_something:
        return f"'{vertex.head.name}' has a rate limit, which Spark SQL does not keep"
    conditions: list[AnyCondition] = []
    kept: set[str] | None = None
    for number, operator in enumerate(vertex.operators[1:]):
        condition, selected = operator.spec.condition, operator.spec.selected_columns
        if condition is None and selected is None:
            return f"'{operator.name}' takes the rows, which is no built-in operator of columns"
        if [call.target for call in vertex.chained_edges if call.source == number] != [number + 1]:
            return f"several operators read the rows of '{vertex.operators[number].name}'"
        if condition is not None:
            for expression in expressions_of(condition):
                return (
                    f"'{operator.name}' has the Arrow expression {expression.text}, which Spark cannot read"
                )
            conditions.append(condition)
        if selected is not None:
            kept = set(selected)
    edges = graph.outputs_of(vertex.id)
    if len(edges) != 1:
        return f"{len(edges)} stages read the files' rows"
    (edge,) = edges
    if edge.source_operator != len(vertex.operators) - 1:
        return f"several operators read the rows of '{vertex.operators[edge.source_operator].name}'"
    target = graph.vertex(edge.target)
    aggregates = target.head.spec.keyed_aggregates
    if aggregates is None or edge.partitioner.kind is not PartitionerKind.KEY_GROUP:
        return f"'{target.head.name}' takes the rows, which is no built-in aggregate of columns"
    if len(graph.inputs_of(target.id)) != 1:
        return f"'{target.head.name}' has rows of other stages too"
    found = SqlAggregation(scan=scan, aggregates=aggregates, condition=_all_of(conditions))
    if kept is not None and (missing := set(_aggregated(aggregates)) - kept):
        return f"no column {sorted(missing)[0]!r} is selected"
    return found


def _all_of(conditions: Sequence[AnyCondition]) -> AnyCondition | None:
    return AllOf(tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)


def _aggregated(aggregates: KeyedAggregates) -> Iterator[str]:
    yield from aggregates.key_names
    yield from (each.column for each in aggregates.aggregates if each.column is not None)


def _schema(encoded: bytes) -> pa.Schema:
    import pyarrow as pa

    return pa.ipc.read_schema(pa.py_buffer(encoded))


def why_inexact(schema: pa.Schema, aggregates: KeyedAggregates) -> str:
    """Why Spark SQL would not give the operator's own results over columns of `schema`; "" = it gives the same."""
    for name in _aggregated(aggregates):
        if len(schema.get_all_field_indices(name)) != 1:
            return f"the files have no single column '{name}'"
    for name in aggregates.key_names:
        kind = schema.field(name).type
        if not _is_exact_key(kind):
            return f"keys of type {kind} (column '{name}') are not the same in Spark"
    for aggregate in aggregates.aggregates:
        if aggregate.kind not in _KINDS:
            return f"{aggregate.kind.value} keeps whole rows"
        if aggregate.column is not None and (why := _why_no(aggregate, schema.field(aggregate.column).type)):
            return why
    return ""


def _why_other_rows(schema: pa.Schema, condition: Condition) -> str:
    """Why Spark SQL would not keep the same rows; "" = it does."""
    # What is wrong with the condition itself is for the operator to name.
    if why := why_not_compared(condition, schema):
        return why
    for part in comparisons_of(condition):
        kind = schema.field(part.column).type
        if not (_is_exact(values_of(kind)) or _is_real(values_of(kind))):
            return f"filter by '{part.column}': a column of type {kind} is not the same in Spark"
    return ""


def _is_real(kind: pa.DataType) -> bool:
    import pyarrow.types as arrow

    return bool(arrow.is_float32(kind) or arrow.is_float64(kind))


def _why_no(aggregate: ColumnAggregate, kind: pa.DataType) -> str:
    """Why an aggregate of a column of that type is not the same in Spark; "" = it is."""
    import pyarrow.types as arrow

    kind = values_of(kind)
    name = f"{aggregate.kind.value} of '{aggregate.column}'"
    if aggregate.kind is AggregateKind.COUNT:
        return (
            ""
            if _is_exact(kind) or arrow.is_floating(kind)
            else f"columns of type {kind} are not read by Spark"
        )
    if aggregate.kind in (AggregateKind.SUM, AggregateKind.MEAN):
        if arrow.is_floating(kind):
            return f"{name}: sums of floats depend on the order of rows"
        exact = arrow.is_boolean(kind) or (arrow.is_integer(kind) and not arrow.is_uint64(kind))
        return "" if exact else f"{name}: Spark's sum of {kind} has other limits"
    if _is_real(kind) or _is_exact(kind):
        return ""
    return f"{name}: a column of type {kind} is not the same in Spark"


def _is_exact_key(kind: pa.DataType) -> bool:
    """Floats are shown as they came last (NaN, -0.0), which depends on the order of rows."""
    return _is_exact(values_of(kind))


def _is_exact(kind: pa.DataType) -> bool:
    """Whether Spark has the same values in the same order as Python, and Arrow gives them back."""
    import pyarrow.types as arrow

    return bool(
        arrow.is_boolean(kind)
        or (arrow.is_integer(kind) and not arrow.is_uint64(kind))
        or arrow.is_string(kind)
        or arrow.is_large_string(kind)
        or arrow.is_date32(kind)
        or (arrow.is_timestamp(kind) and kind.unit == "us")
    )


# ---------------------------------------------------------------------- what runs


def with_sql(graph: JobGraph, plan: BatchPlan) -> JobGraph:
    """The graph that the tasks run: sources and aggregates that Spark SQL stands for are replaced."""
    specs: dict[JobVertexID, OperatorSpec] = {}
    #: Edges whose rows stay in their subtask.
    forward: set[int] = set()
    for stage in plan.stages:
        if stage.sql is not None:
            (exchange,) = stage.outputs
            if stage.is_handed_over:
                forward.add(exchange.edge)
            specs[stage.vertex_id] = SqlResultsOperator(
                schema=stage.sql.scan.schema, aggregates=stage.sql.aggregates
            )
            specs[exchange.target] = AggregatedColumnsOperator()
    if not specs:
        return graph
    sources = {stage.vertex_id for stage in sql_stages(plan)}
    return msgspec.structs.replace(
        graph,
        vertices=tuple(
            _with_head(vertex, specs[vertex.id], filters=vertex.id in sources)
            if vertex.id in specs
            else vertex
            for vertex in graph.vertices
        ),
        edges=tuple(
            msgspec.structs.replace(edge, partitioner=PartitionerSpec(kind=PartitionerKind.FORWARD))
            if edge.index in forward
            else edge
            for edge in graph.edges
        ),
    )


def _with_head(vertex: JobVertex, spec: OperatorSpec, *, filters: bool) -> JobVertex:
    """The vertex with another head. `filters`: the operators behind it are filters and selections, which Spark ran."""
    head = msgspec.structs.replace(vertex.head, spec=spec)
    others = vertex.operators[1:]
    if filters:
        others = tuple(msgspec.structs.replace(each, spec=AggregatedColumnsOperator()) for each in others)
    return msgspec.structs.replace(vertex, operators=(head, *others))


def sql_stages(plan: BatchPlan) -> tuple[BatchStage, ...]:
    """The stages whose files Spark SQL reads."""
    return tuple(stage for stage in plan.stages if stage.sql is not None)
