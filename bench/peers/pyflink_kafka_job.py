"""Kafka -> keyed count -> Kafka on PyFlink, exactly once with a checkpoint each second, parallelism 1.

bench/peers/pyflink_kafka.py brings up what it needs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaTopicPartition,
)

USERS, COUNTS = "bench-users", "bench-counts"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--python", required=True, help="the Python of Yarrow's environment")
    given = arguments.parse_args()
    ready = [given.python, "-m", "bench.peers.pyflink_kafka", str(given.records)]
    servers, jar = subprocess.run(
        ready, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.splitlines()
    # Flink's launcher looks for `python` on the PATH.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    configuration = Configuration()
    configuration.set_string("python.fn-execution.bundle.size", "10000")
    configuration.set_string("python.execution-mode", "process")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.enable_checkpointing(1000)
    env.add_jars(f"file://{jar}")
    end = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(USERS, 0): given.records})
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(USERS)
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(end)
        .set_property("isolation.level", "read_committed")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    records = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(COUNTS)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(records)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("bench-pyflink")
        .set_property("transaction.timeout.ms", "600000")
        .set_property("linger.ms", "50")
        .set_property("batch.size", "1000000")
        .build()
    )
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "users")
        .map(lambda user: (user, 1), output_type=pair)
        .key_by(lambda row: row[0], key_type=Types.STRING())
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .map(lambda row: f"{row[0]} {row[1]}", output_type=Types.STRING())
        .sink_to(sink)
    )
    env.execute("kafka counts")


if __name__ == "__main__":
    main()
