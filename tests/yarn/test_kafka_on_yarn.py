"""Topic -> keyed count -> topic in containers of YARN: one of them is killed, the broker too, and each count is there
once. A bounded job then counts both topics, as streams of two clusters."""

from __future__ import annotations

import ast
import os
import re
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.kafka.counting_job import Words
from tests.kafka.streams_of_clusters import STREAM, StreamsOfClusters
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.containers import ContainerProcess
from tests.support.kafka.run_clusters import cluster_of_run
from tests.yarn.commands import commands_in
from tests.yarn.watched_jobs import RESTARTS

pytestmark = pytest.mark.fault

PARTITIONS = 2
TASK_EXECUTOR = "-m yarrow.container.process.yarn_task_executor"
COUNTS = """
import sys

from yarrow.common import SimpleStringSchema, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment, ValueStateDescriptor
from yarrow.datastream.connectors import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaSource


class UpToEnd(SimpleStringSchema):
    def is_end_of_stream(self, next_element):
        return next_element == "end"


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, word, ctx):
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield f"{word} {count}"


servers, words, counts, prefix = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
source = (
    KafkaSource.builder()
    .set_bootstrap_servers(servers)
    .set_topics(words)
    .set_value_only_deserializer(UpToEnd())
    .set_property("partition.discovery.interval.ms", "-1")
    .build()
)
serializer = (
    KafkaRecordSerializationSchema.builder()
    .set_topic(counts)
    .set_value_serialization_schema(SimpleStringSchema())
    .build()
)
sink = (
    KafkaSink.builder()
    .set_bootstrap_servers(servers)
    .set_record_serializer(serializer)
    .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
    .set_transactional_id_prefix(prefix)
    .build()
)
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "words")
rows.key_by(lambda word: word, Types.STRING()).process(Count(), Types.STRING()).sink_to(sink)
env.execute("counts")
"""

WORDS_OF_STREAMS = """
import sys

from yarrow.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.dynamic_kafka import DynamicKafkaSource, YamlFileMetadataService
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer

env = StreamExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({"execution.runtime-mode": "BATCH"})
)
source = (
    DynamicKafkaSource.builder()
    .set_stream_ids({sys.argv[2]})
    .set_kafka_metadata_service(YamlFileMetadataService(sys.argv[1]))
    .set_value_only_deserializer(SimpleStringSchema())
    .set_bounded(KafkaOffsetsInitializer.latest())
    .build()
)
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "streams")
pairs = rows.map(lambda row: (row.partition(" ")[0], 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
with pairs.key_by(lambda pair: pair[0]).sum(1).execute_and_collect("words of streams") as results:
    print("counted", dict(results))
"""


def task_executors(hadoop: HadoopCluster, application: str) -> list[ContainerProcess]:
    """The processes of TaskExecutors, without the shells above them."""
    return [
        one
        for one in hadoop.container_processes(application)
        if TASK_EXECUTOR in one.command and "python" in one.command.partition(" ")[0]
    ]


def test_a_container_and_the_broker_are_killed(
    hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str, tmp_path: Path
) -> None:
    settings = {
        **RESTARTS,
        "parallelism.default": "2",
        "execution.checkpointing.interval": "300 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.dir": f"{hdfs_folder}/checkpoints",
    }
    with cluster_of_run() as kafka, commands_in(hadoop, tmp_path, settings) as yarrow:
        for topic in ("words", "counts"):
            kafka.create_topic(topic, PARTITIONS)
        words = Words(kafka.bootstrap_servers, "words", PARTITIONS)
        target = TopicUnderTest(kafka, "counts")
        words.send(300)
        (tmp_path / "counts.py").write_text(COUNTS)
        application = yarrow.ok("session", "-d", "-nm", yarrow.name("counts")).application
        job = yarrow.ok(
            "run", "-d", "counts.py", kafka.bootstrap_servers, "words", "counts", target.prefix
        ).job
        yarrow.eventually(lambda: len(target.rows()) == 300, "the first counts")

        victim = task_executors(hadoop, application)[0]
        os.kill(victim.pid, signal.SIGKILL)
        words.send(300)
        yarrow.eventually(lambda: len(target.rows()) >= 600, "counts behind the killed container")
        assert victim.pid not in {one.pid for one in task_executors(hadoop, application)}

        words.send(300)
        kafka.kill()
        kafka.start()
        kafka.wait_until_ready()
        words.send(300)
        words.end()
        yarrow.eventually(lambda: f"{job} : counts (FINISHED)" in yarrow.ok("list", "-a").out, "its end")
        assert Counter(target.rows()) == words.counts()
        assert target.leftovers() == []

        # The broker stands for both clusters. The sink's topic has rows of committed transactions alone.
        streams = StreamsOfClusters(tmp_path / "streams.yaml", "words", east=kafka, west=kafka)
        streams.tell("east", ["words"])
        streams.tell("west", ["counts"])
        (tmp_path / "bounded.py").write_text(WORDS_OF_STREAMS)
        out = yarrow.ok("run", "bounded.py", str(streams.file), STREAM).out
        printed = re.search(r"^counted (.*)$", out, re.MULTILINE)
        assert printed is not None, out
        twice = {word: 2 * number for word, number in words.sent.items()}
        assert ast.literal_eval(printed[1]) == twice | {"end": PARTITIONS}
        assert "words of streams (FINISHED)" in yarrow.ok("list", "-a").out
        yarrow.ok("session", "-id", application, text="stop\n")
        assert yarrow.final_status(application) == "SUCCEEDED"
