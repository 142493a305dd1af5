"""Claims of a StreamGraph: finds the parts behind each sink, has the rules decide, and writes both into the nodes.

Owner: the thread that builds the program. delivery_rules decides. Must not look into user code.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import yarrow.runtime.config.options.checkpointing as checkpointing_options
import yarrow.runtime.config.options.high_availability as high_availability_options
import yarrow.runtime.config.options.restart_strategy as restart_options
from yarrow.common.values.delivery import Replay
from yarrow.datastream.program.delivery_rules import (
    RecoveryFacts,
    SinkPart,
    SourcePart,
    claim_of,
    claim_text,
    refuse_untrue_checkpoints,
    replay_text,
)
from yarrow.runtime.config.options.execution import RUNTIME_MODE, RuntimeMode
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import OperatorSpec, PartitionerKind
from yarrow.runtime.graph.stream_graph import StreamEdge, StreamGraph, StreamNode

_log = logging.getLogger(__name__)

_WITHOUT_RESTART = (
    restart_options.RestartStrategy.NONE,
    restart_options.RestartStrategy.OFF,
    restart_options.RestartStrategy.DISABLE,
)


def recovery_of(settings: Settings, *, all_bounded: bool) -> RecoveryFacts:
    """Return how a job with these settings comes back after a failure; `all_bounded`: all of its sources end."""
    mode = settings.get(RUNTIME_MODE)
    interval = settings.get(checkpointing_options.INTERVAL)
    checkpoints = interval is not None and interval.nanos > 0
    strategy = settings.get(restart_options.TYPE)
    restarts = checkpoints if strategy is None else strategy not in _WITHOUT_RESTART
    return RecoveryFacts(
        batch=mode is RuntimeMode.BATCH or (mode is RuntimeMode.AUTOMATIC and all_bounded),
        checkpoints=checkpoints,
        mode=settings.get(checkpointing_options.MODE),
        mode_is_asked=settings.is_set(checkpointing_options.MODE),
        restarts=restarts or settings.get(high_availability_options.TYPE).upper() != "NONE",
        awaits_last_checkpoint=settings.get(checkpointing_options.AFTER_TASKS_FINISH),
        accepts_loss=settings.get(checkpointing_options.ALLOW_NON_REPLAYABLE_SOURCES),
    )


def settle_claims(graph: StreamGraph, settings: Settings) -> None:
    """Write into each source and sink what it claims, and into each sink the guarantee that its writer keeps.

    Raises ClaimRefusedError for a claim that is stronger than the weakest part of the job.
    """
    sources = {node.id: _source(node) for node in graph.sources() if node.spec.is_source}
    job = recovery_of(settings, all_bounded=all(source.bounded for source in sources.values()))
    refuse_untrue_checkpoints(job, sources.values())
    for node in graph.nodes.values():
        delivery = node.spec.delivery
        if node.id in sources:
            node.claim = replay_text(sources[node.id].replay)
        elif delivery is not None:
            reached = sorted(_reaching(graph, node))
            part = SinkPart(
                name=node.name,
                delivery=delivery,
                sources=[sources[each] for each in reached if each in sources],
                scattered_at=_scattered_at(graph, node) if delivery.replaces_by_key else None,
            )
            claim = claim_of(job, part)
            node.spec = node.spec.with_guarantee(claim.guarantee)
            node.claim = claim_text(claim)


def _source(node: StreamNode) -> SourcePart:
    return SourcePart(
        # As the program has named it.
        name=node.name.removeprefix("Source: "),
        replay=node.spec.replay or Replay.EXACT_POSITIONS,
        bounded=node.spec.is_bounded,
    )


def _reaching(graph: StreamGraph, node: StreamNode) -> set[int]:
    """The nodes from which records may reach a node."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        for edge in waiting.pop().in_edges:
            if edge.source not in found:
                found.add(edge.source)
                waiting.append(graph.nodes[edge.source])
    return found


# ---------------------------------------------------------------------- order of the rows of a key


def _scattered_at(graph: StreamGraph, sink: StreamNode) -> str | None:
    """Return the exchange nearest to the sink at which rows of one key may overtake each other; None = there is none.

    The search ends at operators that compute by key, since their results have an order of their own.
    """
    for edge in _passing_on(graph, sink):
        source, target = graph.nodes[edge.source], graph.nodes[edge.target]
        if target.parallelism > 1 and _scatters(
            edge.partitioner.kind, source.parallelism, target.parallelism
        ):
            return f"the {edge.partitioner.kind} from '{source.name}' to '{target.name}'"
    return None


def _passing_on(graph: StreamGraph, sink: StreamNode) -> Iterator[StreamEdge]:
    """The edges on which rows travel to the sink without a computation by key, the nearest first."""
    seen = {sink.id}
    waiting = [sink]
    while waiting:
        node = waiting.pop(0)
        for edge in node.in_edges:
            yield edge
            by_key = edge.partitioner.kind is PartitionerKind.KEY_GROUP and not _keeps_order(node.spec)
            if edge.source not in seen and not by_key:
                seen.add(edge.source)
                waiting.append(graph.nodes[edge.source])


def _scatters(kind: PartitionerKind, producers: int, consumers: int) -> bool:
    """Whether rows of one key may reach several subtasks of an operator that has more than one."""
    if kind is PartitionerKind.RESCALE:
        return consumers > producers
    return kind in (PartitionerKind.REBALANCE, PartitionerKind.SHUFFLE, PartitionerKind.BROADCAST)


def _keeps_order(spec: OperatorSpec) -> bool:
    """Whether an operator emits rows as they come, without a computation by key."""
    return spec.is_sink or spec.keeps_rows or (spec.keeps_time and not spec.is_rolling)


def log_claims(graph: JobGraph) -> None:
    """Write to the log what each sink keeps whose program asks for no guarantee."""
    for vertex in graph.vertices:
        for operator in vertex.operators:
            spec = operator.spec
            if (
                spec.settled_guarantee is not None
                and spec.delivery is not None
                and spec.delivery.asked is None
            ):
                _log.info(
                    "Job '%s': no delivery guarantee is set for sink '%s' (%s), so it keeps %s; claim: %s",
                    graph.name,
                    operator.name,
                    spec.delivery.connector,
                    spec.settled_guarantee.name,
                    operator.claim,
                )
