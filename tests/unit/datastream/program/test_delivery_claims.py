"""Claims of whole programs: sources and sinks of users, the order of the rows of a key, plans and log."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common import Encoder, WatermarkStrategy
from yarrow.datastream import CheckpointingMode, DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import (
    Boundedness,
    Committer,
    DeliveryGuarantee,
    KeptBy,
    Replay,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    delivery_of,
)
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.connectors.two_phase_commit import TwoPhaseCommitSink
from yarrow.datastream.program.delivery_claims import log_claims
from yarrow.datastream.program.delivery_rules import ClaimRefusedError
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph, encode_job_graph
from yarrow.runtime.graph.translation.plan import stream_graph_of_job
from yarrow.testing.transactional_files import TransactionalFiles

C = "execution.checkpointing."
AVAILABLE = {
    "high-availability.type": "zookeeper",
    "high-availability.zookeeper.quorum": "zk:2181",
    "high-availability.storageDir": "hdfs:///ha",
}


class Queue(NumberSequenceSource):
    """A source of a user that acknowledges."""

    replay = Replay.AT_LEAST_ONCE


class Snapshot(NumberSequenceSource):
    replay = Replay.BOUNDED_SNAPSHOT


class Alone(Sink[Any]):
    """A sink of a user whose writer flushes."""

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[Any]:
        raise NotImplementedError


class Committing(Alone):
    """A sink of a user with a committer, and no declaration."""

    def create_committer(self) -> Committer | None:
        raise NotImplementedError


class Upserts(Alone):
    """A sink of a user that replaces rows."""

    def __init__(self, *key: str) -> None:
        self._key = key

    def guarantees(self) -> Mapping[DeliveryGuarantee, KeptBy]:
        return {DeliveryGuarantee.AT_LEAST_ONCE: KeptBy.IDEMPOTENT_KEY}

    def upsert_key(self) -> Sequence[str]:
        return self._key


def asking(sink: Sink[Any], guarantee: DeliveryGuarantee) -> Sink[Any]:
    sink.delivery_guarantee = guarantee
    return sink


def numbers(env: StreamExecutionEnvironment, source: Source[Any, Any] | None = None) -> DataStream:
    given = NumberSequenceSource(1, 9) if source is None else source
    return env.from_source(given, WatermarkStrategy.no_watermarks(), "numbers")


def graph_of(
    sink: Sink[Any],
    source: Source[Any, Any] | None = None,
    *,
    between: Callable[[DataStream], DataStream] = lambda stream: stream,
    checkpoints: bool = True,
    settings: Mapping[str, str] | None = None,
) -> JobGraph:
    env = environment(parallelism=2)
    if checkpoints:
        env.enable_checkpointing(1000)
    for key, value in (settings or {}).items():
        env.get_configuration().set_string(key, value)
    between(numbers(env, source)).sink_to(sink).name("out")
    return env.get_job_graph("job")


def claim_in(graph: JobGraph, name: str) -> str:
    return next(op.claim for vertex in graph.vertices for op in vertex.operators if name in op.name)


def guarantee_in(graph: JobGraph) -> DeliveryGuarantee | None:
    return next(
        op.spec.settled_guarantee for vertex in graph.vertices for op in vertex.operators if op.spec.is_sink
    )


# ---------------------------------------------------------------------- what users declare


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        (Alone(), "at least once, by rows flushed before each checkpoint"),
        (Committing(), "exactly once, by a transaction that another process can finish"),
        (TransactionalFiles("out"), "exactly once, by a transaction that another process can finish"),
        (
            FileSink.for_row_format("out", Encoder.simple_string_encoder()).build(),
            "exactly once, by staged rows with a marker",
        ),
        (Upserts("id"), "idempotent by key"),
    ],
)
def test_sinks_claim_what_they_declare(sink: Sink[Any], expected: str) -> None:
    graph = graph_of(sink)
    assert claim_in(graph, "out") == expected
    assert claim_in(graph, "numbers") == "replay: exact positions"
    assert decode_job_graph(encode_job_graph(graph)) == graph


@pytest.mark.parametrize("source", [Queue(1, 9), Snapshot(1, 9)])
def test_a_source_of_a_user_weakens_the_claim_of_a_sink(source: Source[Any, Any]) -> None:
    graph = graph_of(TransactionalFiles("out"), source)
    assert claim_in(graph, "out").startswith("at least once, by a transaction")
    assert claim_in(graph, "numbers") == f"replay: {source.replay}"
    with pytest.raises(ClaimRefusedError, match=r"'out: Writer' \(TransactionalFiles\).*source 'numbers'"):
        graph_of(asking(TransactionalFiles("out"), DeliveryGuarantee.EXACTLY_ONCE), source)
    with pytest.raises(ClaimRefusedError, match=r"sets execution.checkpointing.mode to EXACTLY_ONCE"):
        graph_of(Alone(), source, settings={f"{C}mode": "EXACTLY_ONCE"})


def test_a_snapshot_is_exact_in_batch() -> None:
    graph = graph_of(
        TransactionalFiles("out"),
        Snapshot(1, 9),
        checkpoints=False,
        settings={"execution.runtime-mode": "BATCH"},
    )
    assert claim_in(graph, "out") == "exactly once, by a transaction that another process can finish"


def test_the_older_declaration_of_a_source_is_read_and_told() -> None:
    with pytest.warns(DeprecationWarning, match=r"Lines: replayable = False .* `replay = Replay.NONE`"):

        class Lines(NumberSequenceSource):
            replayable = False

    class Pipe(NumberSequenceSource):
        def __init__(self) -> None:
            super().__init__(1, 2)
            self.replayable = False

    with pytest.warns(DeprecationWarning, match=r"Pipe: replayable = False"):
        pipe = Pipe()
    for source in (Lines(1, 2), pipe):
        assert source.replay is Replay.NONE and not source.replayable
        with pytest.raises(ClaimRefusedError, match=r"'numbers' cannot read its records again"):
            graph_of(Alone(), source)
    with pytest.raises(TypeError, match=r"Wrong: replayable is a bool, not 'no'; declare `replay`"):

        class Wrong(NumberSequenceSource):
            replayable = "no"  # type: ignore[assignment]

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class New(NumberSequenceSource):
            replay = Replay.NONE

        assert not New(1, 2).replayable


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"delivery_guarantee": "exactly-once"}, r"Alone: delivery_guarantee is a DeliveryGuarantee or None"),
        ({"guarantees": lambda: {"once": KeptBy.FLUSH}}, r"Alone: guarantees\(\) maps DeliveryGuarantee"),
        ({"upsert_key": lambda: "id"}, r"Alone: upsert_key\(\) returns a sequence of names, not 'id'"),
    ],
)
def test_declarations_of_another_type_are_refused(declared: dict[str, Any], expected: str) -> None:
    sink = Alone()
    for name, value in declared.items():
        setattr(sink, name, value)
    with pytest.raises(TypeError, match=expected):
        delivery_of(sink)


def test_a_source_made_at_the_switch_of_a_hybrid_source_is_declared_before() -> None:
    def chain(*replay: Replay) -> HybridSource[Any]:
        builder = HybridSource.builder(NumberSequenceSource(1, 2))
        return builder.add_source(lambda context: Queue(3, 4), Boundedness.BOUNDED, *replay).build()

    assert claim_in(graph_of(Alone(), chain(Replay.AT_LEAST_ONCE)), "numbers") == "replay: at least once"
    assert chain(Replay.AT_LEAST_ONCE).made_at(1, None) is not None  # type: ignore[arg-type]
    with pytest.raises(InvalidProgramError, match=r"Queue, source 1, replays 'at least once'.*replay=Replay"):
        chain().made_at(1, None)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- checkpoints


def test_a_bounded_stream_without_checkpoints_claims_what_its_restarts_allow() -> None:
    once = asking(TransactionalFiles("out"), DeliveryGuarantee.EXACTLY_ONCE)
    assert claim_in(graph_of(once, checkpoints=False), "out").startswith("exactly once")
    for settings in ({"restart-strategy.type": "fixed-delay"}, AVAILABLE):
        found = graph_of(TransactionalFiles("out"), checkpoints=False, settings=settings)
        assert guarantee_in(found) is DeliveryGuarantee.AT_LEAST_ONCE
        with pytest.raises(ClaimRefusedError, match="a restart begins anew"):
            graph_of(once, checkpoints=False, settings=settings)


def test_an_unbounded_stream_without_checkpoints_claims_nothing() -> None:
    def program(sink: Sink[Any]) -> JobGraph:
        env = environment(parallelism=2)
        env.socket_text_stream("localhost", 1).sink_to(sink).name("out")
        return env.get_job_graph("job")

    found = program(TransactionalFiles("out"))
    assert guarantee_in(found) is DeliveryGuarantee.NONE
    assert claim_in(found, "out").startswith("no claim: rows may be lost (the job takes no checkpoints")
    with pytest.raises(ClaimRefusedError, match="enable_checkpointing"):
        program(asking(TransactionalFiles("out"), DeliveryGuarantee.EXACTLY_ONCE))


def test_only_the_sources_behind_a_sink_count() -> None:
    env = environment(parallelism=1)
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
    env.socket_text_stream("localhost", 1).print()
    numbers(env).union(numbers(env, Queue(1, 2))).sink_to(Alone()).name("out")
    graph = env.get_job_graph("job")
    assert claim_in(graph, "Print").startswith("no claim")
    assert claim_in(graph, "out").startswith("at least once")


# ---------------------------------------------------------------------- order of the rows of a key


def summed(stream: DataStream) -> DataStream:
    return stream.map(lambda value: (value % 3, value)).key_by(lambda row: row[0]).reduce(lambda a, b: b)


@pytest.mark.parametrize(
    ("between", "expected"),
    [
        (lambda stream: stream.rebalance(), "the REBALANCE from 'Source: numbers' to 'out: Writer'"),
        (lambda stream: stream.shuffle().map(str), "the SHUFFLE from 'Source: numbers' to 'Map'"),
        (lambda stream: stream.broadcast().map(str), "the BROADCAST from 'Source: numbers' to 'Map'"),
        (lambda stream: summed(stream).rebalance(), "the REBALANCE"),
        (
            lambda stream: summed(stream).map(str).set_parallelism(4).filter(bool).set_parallelism(2),
            "the REBALANCE",
        ),
        # The rows are in disorder before they come together by key.
        (lambda stream: stream.rebalance().map(str).key_by(lambda row: row), "to 'Map'"),
        (lambda stream: stream.map(str).set_parallelism(1).rescale(), "the RESCALE"),
    ],
)
def test_upserts_behind_a_rebalance_are_refused(
    between: Callable[[DataStream], DataStream], expected: str
) -> None:
    with pytest.raises(ClaimRefusedError, match=rf"by key \(id\).*lose their order at .*{expected}"):
        graph_of(Upserts("id"), between=between)


@pytest.mark.parametrize(
    "between",
    [
        lambda stream: stream.map(str),
        summed,
        lambda stream: summed(stream.rebalance()),
        lambda stream: summed(stream).map(str).filter(bool),
        lambda stream: summed(stream).global_(),
        lambda stream: stream.rescale(),
        lambda stream: stream.key_by(lambda row: row),
    ],
)
def test_upserts_in_the_order_of_their_keys_are_accepted(between: Callable[[DataStream], DataStream]) -> None:
    assert claim_in(graph_of(Upserts("id"), between=between), "out") == "idempotent by key"


def test_one_subtask_keeps_the_order() -> None:
    env = environment(parallelism=1)
    env.enable_checkpointing(1000)
    numbers(env).rebalance().map(str).sink_to(Upserts("id")).name("out")
    assert claim_in(env.get_job_graph("job"), "out") == "idempotent by key"


def test_upserts_without_a_key_are_refused() -> None:
    with pytest.raises(
        ClaimRefusedError, match=r"'out: Writer' \(Upserts\) replaces rows by key, and knows no key"
    ):
        graph_of(Upserts())


# ---------------------------------------------------------------------- who shows it


def test_plans_show_the_same_claims() -> None:
    env = environment(parallelism=2)
    env.enable_checkpointing(1000)
    numbers(env).sink_to(TransactionalFiles("out")).name("out")
    expected = {
        "Source: numbers": "replay: exact positions",
        "out: Writer": "exactly once, by a transaction that another process can finish",
    }
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert {node["type"]: node["claim"] for node in nodes} == expected
    graph = env.get_job_graph("job")
    shown = [claim for node in graph.plan["nodes"] for claim in node["claims"]]
    assert {claim["operator"]: claim["claim"] for claim in shown} == expected
    assert {node["operator"]: node["claim"] for node in stream_graph_of_job(graph)["nodes"]} == expected


def test_the_log_tells_what_was_chosen(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    env = environment(parallelism=1)
    stream = numbers(env)
    stream.sink_to(TransactionalFiles(str(tmp_path))).name("chosen")
    stream.sink_to(asking(TransactionalFiles(str(tmp_path)), DeliveryGuarantee.NONE)).name("asked")
    stream.print()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    with caplog.at_level(logging.INFO):
        log_claims(env.get_job_graph("job"))
    assert caplog.messages == [
        "Job 'job': no delivery guarantee is set for sink 'chosen: Writer' (TransactionalFiles), so it keeps"
        " EXACTLY_ONCE; claim: exactly once, by a transaction that another process can finish"
    ]


def test_a_two_phase_commit_sink_has_no_guarantee_of_its_own() -> None:
    """The job chooses, so that rows of a job without checkpoints are seen at all."""
    assert TwoPhaseCommitSink.delivery_guarantee is None
