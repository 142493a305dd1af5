"""docs/connectors.md, written from what connectors declare and from the rules of delivery, so that page and code agree.

Owner: none (pure). It makes sources and sinks, and neither connects them nor runs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from yarrow.common import Encoder, SimpleStringSchema
from yarrow.common.execution_modes import CheckpointingMode
from yarrow.common.values.delivery import DeliveryGuarantee, KeptBy, Replay, SinkDelivery
from yarrow.datastream.connectors.base import Sink, Source, delivery_of
from yarrow.datastream.connectors.collection import CollectionSource
from yarrow.datastream.connectors.datagen import DataGeneratorSource
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.dynamic_kafka import DynamicKafkaSource, YamlFileMetadataService
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.kafka import (
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    KafkaSource,
)
from yarrow.datastream.connectors.letter_replay.letters_source import LettersSource, LetterTarget
from yarrow.datastream.connectors.letter_replay.silent_source import SilentSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.connectors.socket.socket_text_source import SocketTextSource
from yarrow.datastream.program.delivery_rules import (
    Claim,
    ClaimRefusedError,
    RecoveryFacts,
    SinkPart,
    SourcePart,
    claim_of,
    refuse_untrue_checkpoints,
    replay_text,
)
from yarrow.runtime.graph.connector_spec import (
    CollectOperator,
    PrintOperator,
    SinkFunctionOperator,
    SourceFunctionOperator,
)
from yarrow.runtime.graph.operator_spec import OperatorSpec
from yarrow.testing.transactional_files import TransactionalFiles

_INTRODUCTION: Final = """\
# Connectors

`python -m tests.support.pages` writes this page from what the connectors declare and from the rules of delivery.
[sources.md](sources.md) and [sinks.md](sinks.md) show how to use them, and
[design/0049](design/0049-what-connectors-claim.md) tells why the rules are as they are.

A claim is what is true of the rows of a sink after a failure:

- **exactly once**: readers of the target see each row once.
- **idempotent by key**: the target ends with the rows of exactly once. Until then, readers may see a key go back to an
  older row.
- **at least once**: no row is lost, and rows may be there several times.
- **no claim**: rows may be lost.

A job claims as much as the weakest of its sources, its checkpoints and the sink. `execute()` refuses a program that
asks for more, and names the part and what would be enough. A sink whose `delivery_guarantee` is unset keeps the
strongest guarantee that holds, and the log tells which. `yarrow info`, `get_execution_plan` and REST (`claims` of a
plan's nodes) show the claims in the words of this page.
"""

_NO_WORDS: Final = "not kept"


def render() -> str:
    """The whole page."""
    return "\n".join(_lines()) + "\n"


def sources() -> dict[str, Source[Any, Any] | OperatorSpec]:
    """Each source of this version by its name for people, made with some settings."""
    files = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in").build()
    numbers = NumberSequenceSource(1, 2)
    socket = SocketTextSource("localhost", 1)
    return {
        "collection": CollectionSource([1], None),
        "sequence: `NumberSequenceSource`": numbers,
        "generator: `DataGeneratorSource`": DataGeneratorSource(str, 1),
        "files: `FileSource`": files,
        "Kafka: `KafkaSource`": KafkaSource.builder()
        .set_bootstrap_servers("localhost:9092")
        .set_topics("topic")
        .set_value_only_deserializer(SimpleStringSchema())
        .build(),
        "Kafka, several clusters: `DynamicKafkaSource`": DynamicKafkaSource.builder()
        .set_stream_ids({"stream"})
        .set_kafka_metadata_service(YamlFileMetadataService("streams.yaml"))
        .set_value_only_deserializer(SimpleStringSchema())
        .build(),
        "letters that `replay-dead-letters` feeds: `LettersSource`": LettersSource(
            files, LetterTarget("uid", 0)
        ),
        "sources that are silent in a replay: `SilentSource`": SilentSource(),
        "`HybridSource` of files and numbers": HybridSource.builder(files).add_source(numbers).build(),
        "`HybridSource` of files and a socket": HybridSource.builder(files).add_source(socket).build(),
        "socket: `SocketTextSource`": socket,
        "`SourceFunction` with `CheckpointedFunction`": SourceFunctionOperator(
            function=b"", keeps_position=True
        ),
        "another `SourceFunction`": SourceFunctionOperator(function=b""),
    }


def sinks() -> dict[str, SinkDelivery]:
    """What each sink of this version declares, by its name for people."""

    class Flushing(Sink[Any]):
        def create_writer(self, context: Any, restored: Any = ()) -> Any:
            raise NotImplementedError

    class Committing(Flushing):
        def create_committer(self) -> Any:
            raise NotImplementedError

    of_engine: dict[str, OperatorSpec] = {
        "`print`": PrintOperator(),
        "`add_sink(SinkFunction)`": SinkFunctionOperator(function=b""),
        "`execute_and_collect`": CollectOperator(collect_id=""),
    }
    made: dict[str, Sink[Any]] = {
        "files: `FileSink`": FileSink.for_row_format("out", Encoder.simple_string_encoder()).build(),
        "dead letters as a table: `DeadLetterTable`": DeadLetterTable("letters"),
        "Kafka: `KafkaSink` with a prefix of transactions": _kafka_sink()
        .set_transactional_id_prefix("p")
        .build(),
        "Kafka: `KafkaSink` without one": _kafka_sink().build(),
        "a subclass of `TwoPhaseCommitSink`": TransactionalFiles("out"),
        "a `Sink` with a committer, without a declaration": Committing(),
        "a `Sink` whose writer only flushes, without a declaration": Flushing(),
    }
    found = {name: delivery_of(sink) for name, sink in made.items()}
    return found | {name: spec.delivery for name, spec in of_engine.items() if spec.delivery is not None}


def _kafka_sink() -> KafkaSinkBuilder:
    records = KafkaRecordSerializationSchema.builder().set_topic("topic")
    serializer = records.set_value_serialization_schema(SimpleStringSchema()).build()
    return KafkaSink.builder().set_bootstrap_servers("localhost:9092").set_record_serializer(serializer)


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Sources\n"
    yield "| source | after a failure |"
    yield "| --- | --- |"
    for name, source in sources().items():
        yield f"| {name} | {replay_text(source.replay or Replay.NONE)} |"
    yield ""
    yield from _replays()
    yield "## Sinks\n"
    yield "| sink | exactly once | at least once |"
    yield "| --- | --- | --- |"
    for name, delivery in sinks().items():
        found = [
            delivery.means(each) for each in (DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE)
        ]
        cells = (_NO_WORDS if means is KeptBy.NOT_AT_ALL else str(means) for means in found)
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""
    yield _OF_SINKS
    yield "## What a job claims\n"
    yield _OF_JOBS
    yield f"| job | input | the sink keeps | {' | '.join(Replay)} |"
    yield f"| --- | --- | --- |{' --- |' * len(Replay)}"
    for job, facts in _JOBS.items():
        for bounded in (True,) if facts.batch else (True, False):
            kept, claims = _claims(facts, bounded)
            yield f"| {job} | {'ends' if bounded else 'does not end'} | {kept.name} | {' | '.join(claims)} |"


def _replays() -> Iterator[str]:
    meanings = {
        Replay.EXACT_POSITIONS: "a checkpoint holds positions, and behind them the same records come again, each once.",
        Replay.BOUNDED_SNAPSHOT: "the input is finite and fixed, and a split that was begun is read again as a whole.",
        Replay.AT_LEAST_ONCE: "records without an acknowledgement come again, and some with one.",
        Replay.NONE: "a record that was read never comes again.",
    }
    for replay in Replay:
        yield f"- `Replay.{replay.name}`, {replay}: {meanings[replay]}"
    yield ""
    yield (
        "A source of your own declares `replay`; without a declaration it is `Replay.EXACT_POSITIONS`. The older"
        " `replayable = False` means `Replay.NONE`, and warns.\n"
    )


_OF_SINKS: Final = """\
A sink of your own declares `guarantees()`, a mapping from `DeliveryGuarantee` to `KeptBy`. A sink whose rows replace
each other by key keeps `AT_LEAST_ONCE` by `KeptBy.IDEMPOTENT_KEY`, and names its key in `upsert_key()`. A program
without a key is refused. So is a program in which rows of one key lose their order behind a rebalance.
"""

_OF_JOBS: Final = """\
The table shows a sink with transactions that is asked for nothing, by what its source gives again. *Restarts* means a
restart strategy or high availability. A source that gives nothing again is accepted under checkpoints with
`execution.checkpointing.allow-non-replayable-sources`: the job then makes no claim.
"""

_JOBS: Final = {
    "STREAMING, checkpoints `EXACTLY_ONCE`": RecoveryFacts(),
    "STREAMING, checkpoints `EXACTLY_ONCE`, none after tasks finish": RecoveryFacts(
        awaits_last_checkpoint=False
    ),
    "STREAMING, checkpoints `AT_LEAST_ONCE`": RecoveryFacts(mode=CheckpointingMode.AT_LEAST_ONCE),
    "STREAMING without checkpoints, restarts": RecoveryFacts(checkpoints=False),
    "STREAMING without checkpoints, no restarts": RecoveryFacts(checkpoints=False, restarts=False),
    "BATCH": RecoveryFacts(batch=True, checkpoints=False),
}


def _claims(job: RecoveryFacts, bounded: bool) -> tuple[DeliveryGuarantee, list[str]]:
    """The guarantee of a sink with transactions, and what the job claims, by the replay of its source."""
    kept_by = {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.TRANSACTION}
    delivery = SinkDelivery(connector="sink", kept_by=kept_by)
    kept, claims = DeliveryGuarantee.NONE, []
    for replay in Replay:
        source = SourcePart(name="source", replay=replay, bounded=bounded)
        try:
            refuse_untrue_checkpoints(job, [source])
        except ClaimRefusedError:
            claims.append("refused")
            continue
        claim = claim_of(job, SinkPart(name="sink", delivery=delivery, sources=[source]))
        kept = claim.guarantee
        claims.append("no claim" if claim.claim is Claim.NONE else str(claim.claim))
    return kept, claims
