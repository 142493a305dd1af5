"""Runs a bounded job by BatchTasks in this thread: stages in order of the plan, chunks passed in memory.

`deal` decides in which order the chunks of different producers reach a task; those of one producer too, unless
the exchange is FORWARD. So a test can show that results depend on neither.
"""

from __future__ import annotations

import random
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.chunk import (
    COLLECTED,
    COMMITTABLES,
    FINISHED,
    PRINTED,
    Chunk,
    TaskResult,
    decode_task_result,
)
from yarrow.container.batch.history.savepoint_metadata import savepoint_metadata
from yarrow.container.batch.iteration_rounds import IterationRounds, SubtaskResult, Superstep
from yarrow.container.batch.largest_key_group import OnLargest
from yarrow.container.batch.split_assignment import assign, assign_history
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.runtime.common.clock import Clock, ManualClock
from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch import batch_planner
from yarrow.runtime.graph.batch.batch_iterations import BatchIteration
from yarrow.runtime.graph.batch.batch_plan import BatchPlan, BatchStage, ExchangeKind
from yarrow.runtime.graph.batch.history import history_of
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner
from yarrow.runtime.security.result_proof import ResultProof
from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream
from yarrow.runtime.snapshot.writing.savepoint_folder import SavepointFolder


@dataclass
class BatchRun:
    """What a job has left behind."""

    graph: JobGraph
    #: Chunks of each edge, in order of their producers.
    chunks: dict[int, list[Chunk]] = field(default_factory=lambda: defaultdict(list))
    #: Collected rows by iterator, in order of partitions.
    collected: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    printed: str = ""
    #: Committables by operator id, in order of partitions.
    committables: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    #: By vertex and subtask.
    results: dict[tuple[JobVertexID, int], TaskResult] = field(default_factory=dict)
    #: Number of supersteps of each iteration.
    supersteps: dict[str, int] = field(default_factory=dict)

    def rows(self) -> list[Any]:
        """The rows of the job's only iterator."""
        (collect_id,) = self.graph.collect_ids
        return self.collected[collect_id]

    def metric(self, name: str) -> float:
        """The sum of a metric over all operators and tasks."""
        return sum(
            value
            for result in self.results.values()
            for metric, value in result.metrics.items()
            if metric.rpartition(".")[2] == name
        )


#: Brings the chunks of a task, in order of edges and producers, into the order in which they reach the task.
Deal = Callable[[list[Chunk]], list[Chunk]]


def in_order(chunks: list[Chunk]) -> list[Chunk]:
    return chunks


def shuffled(seed: int) -> Deal:
    """Any order at all."""

    def deal(chunks: list[Chunk]) -> list[Chunk]:
        return random.Random(seed).sample(chunks, len(chunks))

    return deal


def run_batch(
    graph: JobGraph,
    settings: Mapping[str, str] | None = None,
    *,
    deal: Deal = in_order,
    clock: Clock | None = None,
    attempt: int = 0,
    directory: Path | None = None,
    watch: Callable[[Chunk], object] | None = None,
    largest: OnLargest = lambda largest: None,
) -> BatchRun:
    """Runs the job. Raises what its first failing task raises. `watch` is called with each result.

    `largest` hears of the largest key group of each task.
    """
    if directory is None:
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            return run_batch(
                graph,
                settings,
                deal=deal,
                clock=clock,
                attempt=attempt,
                directory=directory,
                watch=watch,
                largest=largest,
            )
    run = BatchRun(graph)
    if history_of(graph) is not None:
        return _run_history(run, settings or {}, deal, clock or ManualClock(), directory)
    layers = Settings(graph.configuration, "the job").overlay(settings or {}, "the test")
    # Spark SQL computes no stage here.
    without_spark = msgspec.structs.replace(graph, batch_runner=BatchRunner.LOCAL)
    plan = batch_planner.plan(without_spark, combine=layers.get(execution.BATCH_COMBINE))

    def run_stage(stage: BatchStage, superstep: Superstep | None = None) -> None:
        splits = assign(graph, stage.vertex_id, stage.parallelism)
        for subtask in range(stage.parallelism):
            task = BatchTask(
                graph,
                plan,
                BatchAttempt(
                    vertex_id=stage.vertex_id,
                    subtask=subtask,
                    attempt=attempt,
                    splits=tuple(splits[subtask]),
                    result_key=b"key",
                    superstep=superstep,
                ),
                layers,
                clock or ManualClock(),
                directory,
                largest,
            )
            left = list(task.run(_inputs(run, stage, subtask, deal)))
            if watch is not None:
                for chunk in left:
                    if chunk.edge < 0:
                        watch(chunk)
            _keep(run, stage, left)

    for step in plan.steps():
        if isinstance(step, BatchIteration):
            _iterate(run, plan, step, run_stage)
        else:
            run_stage(step)
    return run


def _iterate(
    run: BatchRun,
    plan: BatchPlan,
    iteration: BatchIteration,
    run_stage: Callable[[BatchStage, Superstep | None], None],
) -> None:
    """Runs an iteration; `BatchRun.supersteps` notes how many rounds it took."""
    rounds = IterationRounds(iteration)
    stages = [plan.stage(vertex_id) for vertex_id in iteration.body]
    while True:
        for stage in stages:
            for exchange in stage.outputs:
                run.chunks[exchange.edge].clear()
        for stage in stages:
            run_stage(stage, rounds.present)
        run.supersteps[iteration.control.name] = rounds.present.number
        rounds.finished(
            SubtaskResult(vertex_id, subtask, 0, result)
            for (vertex_id, subtask), result in run.results.items()
            if vertex_id in iteration.body
        )
        if rounds.is_over:
            break
        for variable in iteration.variables:
            first, *others = variable.input_edges
            for edge in others:
                run.chunks[edge].clear()
            run.chunks[first] = [chunk._replace(edge=first) for chunk in run.chunks[variable.output_edge]]
    for each in rounds.totals:
        run.results[each.vertex_id, each.subtask] = each.result


def _run_history(
    run: BatchRun, settings: Mapping[str, str], deal: Deal, clock: Clock, directory: Path
) -> BatchRun:
    """Runs the history of a stream, and leaves the savepoint that the job names."""
    graph = run.graph
    plan = batch_planner.plan(graph)
    assert plan.history is not None
    layers = Settings(graph.configuration, "the job").overlay(settings, "the test")
    enumerators: dict[JobVertexID, bytes] = {}
    with SavepointFolder(plan.history.savepoint) as folder:
        place = folder.foreign_files()
        for stage in plan.stages:
            assigned = assign_history(graph, stage.vertex_id, stage.parallelism)
            if assigned.enumerator:
                enumerators[stage.vertex_id] = assigned.enumerator
            for subtask in range(stage.parallelism):
                attempt = BatchAttempt(
                    vertex_id=stage.vertex_id,
                    subtask=subtask,
                    splits=tuple(assigned.splits[subtask]),
                    result_key=b"key",
                    savepoint=place,
                )
                task = BatchTask(graph, plan, attempt, layers, clock, directory)
                _keep(run, stage, list(task.run(_inputs(run, stage, subtask, deal))))
        states = {task: result.states for task, result in run.results.items()}
        folder.complete(savepoint_metadata(graph, states, enumerators, clock.epoch_ms()))
    return run


def _inputs(run: BatchRun, stage: BatchStage, subtask: int, deal: Deal) -> list[Chunk]:
    found = [
        chunk
        for exchange in stage.inputs
        for chunk in run.chunks[exchange.edge]
        if stage.partition_of(exchange, chunk.target) == subtask
    ]
    kinds = [exchange.kind for exchange in stage.inputs]
    return found if kinds == [ExchangeKind.FORWARD] else deal(found)


def _keep(run: BatchRun, stage: BatchStage, chunks: list[Chunk]) -> None:
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.edge for chunk in chunks if chunk.edge == FINISHED] == [chunks[-1].edge]
    parts: dict[int, bytes] = defaultdict(bytes)
    prepared: dict[int, bytes] = defaultdict(bytes)
    vertex = run.graph.vertex(stage.vertex_id)
    for chunk in chunks:
        if chunk.edge >= 0:
            run.chunks[chunk.edge].append(chunk)
        elif chunk.edge == COLLECTED:
            parts[chunk.target] += chunk.payload
            if chunk.rows:
                rows = _reader(run.graph, chunk.target).load(parts.pop(chunk.target))
                assert len(rows) == chunk.rows
                run.collected[run.graph.collect_ids[chunk.target]] += rows
        elif chunk.edge == PRINTED:
            run.printed += chunk.payload.decode()
        elif chunk.edge == COMMITTABLES:
            prepared[chunk.target] += chunk.payload
            if chunk.rows:
                run.committables[vertex.operators[chunk.target].id].append(prepared.pop(chunk.target))
        elif chunk.edge == FINISHED:
            run.results[stage.vertex_id, chunk.producer] = decode_task_result(chunk.payload)
    assert not parts and not prepared


def _reader(graph: JobGraph, position: int) -> ResultReader:
    collect_id = graph.collect_ids[position]
    type_spec = next(
        operator.input_types[0] if operator.input_types else None
        for vertex in graph.vertices
        for operator in vertex.operators
        if operator.spec.collects_for == collect_id
    )
    return ResultReader(ResultStream(graph.job_id, collect_id, type_spec), ResultProof(key=b"key"))


def collecting_graph(env: StreamExecutionEnvironment, *streams: DataStream) -> JobGraph:
    """The graph of a program that collects streams, as `result0` and so on."""
    builder = env.graph_builder
    for number, stream in enumerate(streams):
        spec = CollectOperator(collect_id=f"result{number}")
        builder.sink(builder.as_rows(stream.transformation), "Collect", spec, parallelism=1)
    return env.get_job_graph()


def collect(env: StreamExecutionEnvironment, stream: DataStream, **options: Any) -> list[Any]:
    """The rows of a stream whose program runs as a batch job; `options` are those of `run_batch`."""
    return run_batch(collecting_graph(env, stream), **options).rows()
