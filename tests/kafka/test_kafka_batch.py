"""Topics as the bounded input of a BATCH job on Spark: each task reads its partitions, and none is read twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kafka.streams_of_clusters import StreamsOfClusters
from tests.kafka.test_kafka_documents import run_program
from tests.support.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

_PROGRAM = """
import sys

from yarrow.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.dynamic_kafka import DynamicKafkaSource, YamlFileMetadataService
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({"execution.runtime-mode": "BATCH", "parallelism.default": "2"})
)


def words(builder, name):
    builder.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
    read = env.from_source(builder.build(), WatermarkStrategy.for_monotonous_timestamps(), name)
    return read.rate_limit(rows_per_second=100_000, bytes_per_second=10_000_000)


topic = KafkaSource.builder().set_bootstrap_servers(sys.argv[1]).set_topics(sys.argv[2])
streams = DynamicKafkaSource.builder().set_stream_ids({"orders"})
streams.set_kafka_metadata_service(YamlFileMetadataService(sys.argv[3]))
both = words(topic, "topic").union(words(streams, "streams"))
pairs = both.map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
with pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect() as results:
    print(dict(results))
"""


def test_a_batch_job_counts_a_topic_and_the_streams_of_two_clusters(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """The broker of the tests stands for both clusters, by two topics."""
    topic, east, west = new_topic(3), new_topic(2), new_topic(1)
    streams = StreamsOfClusters(tmp_path / "streams.yaml", topic, east=kafka, west=kafka)
    streams.tell("east", [east])
    streams.tell("west", [west])
    words = [f"word{number % 7}" for number in range(500)]
    for partition in range(3):
        streams.write("east", *words[partition:300:3], partition=partition)
    for place, name, partition in ((300, east, 0), (301, east, 1), (302, west, 0)):
        streams.write("east", *words[place::3], topic=name, partition=partition)
    printed = run_program(_PROGRAM, tmp_path, kafka.bootstrap_servers, topic, str(streams.file))
    assert ast.literal_eval(printed.splitlines()[-1]) == Counter(words)
