"""Building a KafkaSink: what is missing or wrong is refused at that line, and secrets stay hidden."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from yarrow.common.serialization import SimpleStringSchema
from yarrow.datastream.connectors.base import DeliveryGuarantee, KeptBy
from yarrow.datastream.connectors.kafka import (
    FlinkKafkaProducer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSinkBuilder,
    ProducerRecord,
    Semantic,
)
from yarrow.runtime.common.errors import InvalidProgramError

ANYTHING: Any = "exactly-once"
EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE
AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
Build = Callable[[KafkaSinkBuilder], object]


def serializer() -> KafkaRecordSerializationSchema[Any]:
    builder = KafkaRecordSerializationSchema.builder().set_topic("t")
    return builder.set_value_serialization_schema(SimpleStringSchema()).build()


def complete() -> KafkaSinkBuilder:
    return KafkaSink.builder().set_bootstrap_servers("localhost:9092").set_record_serializer(serializer())


def test_the_settings_are_those_of_javas_producer() -> None:
    sink = complete().set_property("linger.ms", 20).set_property("max.request.size", 5_000_000).build()
    assert sink.settings.producer == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "20",
        "message.max.bytes": "5000000",
        "enable.idempotence": "true",
        "acks": "all",
        "partitioner": "murmur2_random",
    }
    buffered = complete().set_property("buffer.memory", 33_554_432).set_property("client.id.prefix", "etl")
    settings = buffered.build().settings.producer
    assert settings["queue.buffering.max.kbytes"] == "32768"
    assert settings["client.id"] == "etl"
    fast = complete().set_property("acks", "1").build().settings.producer
    assert (fast["acks"], fast["enable.idempotence"]) == ("1", "false")


def test_a_sink_claims_what_it_can_keep() -> None:
    assert complete().build().guarantees() == {AT_LEAST_ONCE: KeptBy.FLUSH}
    named = complete().set_transactional_id_prefix("p")
    both = {AT_LEAST_ONCE: KeptBy.FLUSH, EXACTLY_ONCE: KeptBy.TRANSACTION}
    assert named.build().guarantees() == both
    assert named.build().delivery_guarantee is None
    assert named.set_delivery_guarantee(EXACTLY_ONCE).build().guarantees() == both
    plain = named.set_delivery_guarantee(AT_LEAST_ONCE).build()
    assert plain.guarantees() == {AT_LEAST_ONCE: KeptBy.FLUSH}
    assert plain.create_committer() is None


def test_it_is_sent_by_pickle_and_hides_secrets() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'ScramLoginModule required username="u" password="hidden";',
    }
    sink = cloudpickle.loads(cloudpickle.dumps(complete().set_properties(properties).build()))
    assert sink.settings.producer["sasl.password"] == "hidden"
    assert "hidden" not in repr(sink)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda b: KafkaSink.builder().set_bootstrap_servers("s").build(), "set_record_serializer"),
        (lambda b: KafkaSink.builder().set_record_serializer(serializer()).build(), "bootstrap.servers"),
        (lambda b: b.set_record_serializer(SimpleStringSchema()), "KafkaRecordSerializationSchema"),
        (lambda b: b.set_delivery_guarantee(ANYTHING), "DeliveryGuarantee"),
        (lambda b: b.set_delivery_guarantee(EXACTLY_ONCE).build(), "set_transactional_id_prefix"),
        (lambda b: b.set_transactional_id_prefix(7), "takes a str"),
        (lambda b: b.set_transactional_id_prefix("").build(), "1 to 200"),
        (lambda b: b.set_property("transactional.id", "x").build(), "set_transactional_id_prefix"),
        (lambda b: b.set_property("partitioner.class", "x").build(), "set_partitioner"),
        (lambda b: b.set_property("partitioner", "x").build(), "murmur2"),
        (lambda b: b.set_property("acks", "2").build(), "acks must be"),
        (
            lambda b: b.set_property("acks", "1").set_property("enable.idempotence", True).build(),
            "acks to all",
        ),
        (lambda b: b.set_property("liner.ms", "2").build(), "did you mean linger.ms"),
        (lambda b: b.set_property("buffer.memory", "much").build(), "must be bytes"),
        (lambda b: b.set_property("transaction.timeout.ms", "0").build(), "must be milliseconds"),
        (lambda b: b.set_property("accept-loss", "last").build(), "numbers of checkpoints"),
        (lambda b: b.set_property("grup.id", "g").build(), "did you mean group.id"),
        (
            lambda b: b.set_property("acks", 0).set_delivery_guarantee(AT_LEAST_ONCE).build(),
            "no broker confirms",
        ),
        (
            lambda b: (
                b.set_property("acks", 1)
                .set_transactional_id_prefix("p")
                .set_delivery_guarantee(EXACTLY_ONCE)
                .build()
            ),
            "needs acks=all",
        ),
    ],
)
def test_what_is_missing_or_wrong_is_refused(build: Build, told: str) -> None:
    with pytest.raises(InvalidProgramError, match=told):
        build(complete())


def test_accepted_losses_are_numbers_of_checkpoints() -> None:
    assert complete().build().settings.accepted_losses == frozenset()
    assert complete().set_property("accept-loss", "17, 18").build().settings.accepted_losses == {17, 18}


def test_the_older_producer_describes_a_sink() -> None:
    config = {"bootstrap.servers": "localhost:9092"}
    schema = SimpleStringSchema()
    assert FlinkKafkaProducer("t", schema, config).sink().delivery_guarantee is AT_LEAST_ONCE
    exact = FlinkKafkaProducer("t", schema, config, 3, Semantic.EXACTLY_ONCE)
    assert exact.sink().delivery_guarantee is EXACTLY_ONCE
    assert exact.sink().settings.serializer.serialize("a", 5) == ProducerRecord("t", b"a")
    stamped = exact.set_write_timestamp_to_kafka(True).sink().settings.serializer
    assert stamped.serialize("a", 5) == ProducerRecord("t", b"a", timestamp=5)
    unflushed = FlinkKafkaProducer("t", schema, config).set_flush_on_checkpoint(False)
    assert unflushed.sink().delivery_guarantee is DeliveryGuarantee.NONE


def test_the_older_producer_refuses_silence() -> None:
    producer = FlinkKafkaProducer("t", SimpleStringSchema(), {"bootstrap.servers": "s"})
    with pytest.raises(InvalidProgramError, match="accept-loss"):
        producer.ignore_failures_after_transaction_timeout()
    with pytest.raises(InvalidProgramError, match="fails the job"):
        producer.set_log_failures_only(True)
    with pytest.raises(InvalidProgramError, match="SerializationSchema"):
        FlinkKafkaProducer("t", ANYTHING, {})
    with pytest.raises(InvalidProgramError, match="Semantic"):
        FlinkKafkaProducer("t", SimpleStringSchema(), {}, semantic=ANYTHING)


def test_building_a_sink_loads_no_client_library() -> None:
    program = (
        "import sys\n"
        "from tests.unit.datastream.connectors.kafka.test_kafka_sink import complete\n"
        "complete().set_transactional_id_prefix('p').build()\n"
        "assert not {'confluent_kafka', 'kafka'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
