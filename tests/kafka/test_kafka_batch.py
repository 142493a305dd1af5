"""A topic as the bounded input of a BATCH job on Spark: each task reads its partitions, and none is read twice."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.kafka.test_kafka_documents import run_program
from tests.support.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

_PROGRAM = """
import sys

from yarrow.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({"execution.runtime-mode": "BATCH", "parallelism.default": "2"})
)
topic = KafkaSource.builder().set_bootstrap_servers(sys.argv[1]).set_topics(sys.argv[2])
topic.set_value_only_deserializer(SimpleStringSchema()).set_bounded(KafkaOffsetsInitializer.latest())
words = env.from_source(topic.build(), WatermarkStrategy.for_monotonous_timestamps(), "words")
pairs = words.map(lambda word: (word, 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
with pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect() as results:
    print(dict(results))
"""


def test_a_batch_job_counts_a_topic(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    words = [f"word{number % 7}" for number in range(500)]
    for number, word in enumerate(words):
        producer.produce(topic, word, partition=number % 3)
    assert producer.flush(60) == 0
    printed = run_program(_PROGRAM, tmp_path, kafka.bootstrap_servers, topic)
    assert ast.literal_eval(printed.splitlines()[-1]) == Counter(words)
