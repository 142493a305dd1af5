"""The programs of README.md and docs/kafka.md that read a topic, run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.embedded.waiting import DEADLINE
from tests.cluster.test_readme import PROGRAM, README
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer

pytestmark = pytest.mark.kafka

WORDS = ["to", "be", "or", "not", "to", "be"]


def fill(kafka: KafkaCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for word in WORDS:
        producer.produce(topic, word)
    assert producer.flush(60) == 0


def example_of_page(word: str) -> str:
    """The example of docs/kafka.md that has a word."""
    page = (README.parent / "docs" / "kafka.md").read_text("utf-8")
    (example,) = (text for text in PROGRAM.findall(page) if word in text)
    return str(example)


def run_program(text: str, folder: Path, *arguments: str) -> str:
    """Runs a program in a folder; returns what it prints."""
    script = folder / "count.py"
    script.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(README.parent)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_program_of_the_readme_counts_a_topic_into_files(kafka: KafkaCluster, tmp_path: Path) -> None:
    (program,) = (text for text in PROGRAM.findall(README.read_text("utf-8")) if "KafkaSource" in text)
    assert len([line for line in program.splitlines() if line.strip() and "import" not in line]) <= 10
    kafka.create_topic("words")
    try:
        fill(kafka, "words")
        run_program(program, tmp_path, kafka.bootstrap_servers)
    finally:
        kafka.delete_topic("words")
    files = [file for file in (tmp_path / "counts").rglob("*") if file.is_file()]
    lines = Counter(line for file in files for line in file.read_text("utf-8").splitlines())
    running = Counter(
        f"{(word, count)}" for word, times in Counter(WORDS).items() for count in range(1, times + 1)
    )
    assert lines == running


def test_the_example_of_the_page_reads_a_topic(kafka: KafkaCluster, tmp_path: Path) -> None:
    example = example_of_page("KafkaOffsetsInitializer.earliest()")
    assert "localhost:9092" in example and ".build()" in example
    example = example.replace("localhost:9092", kafka.bootstrap_servers)
    # The page shows a stream without an end.
    example = example.replace(
        "    .build()", "    .set_bounded(KafkaOffsetsInitializer.latest())\n    .build()"
    )
    kafka.create_topic("words")
    try:
        fill(kafka, "words")
        printed = run_program(f"{example}\nwords.print()\nenv.execute()\n", tmp_path)
    finally:
        kafka.delete_topic("words")
    rows = Counter(line.rpartition("> ")[2] for line in printed.splitlines())
    assert rows == Counter(WORDS)


def test_the_example_of_the_page_reads_streams(kafka: KafkaCluster, tmp_path: Path) -> None:
    example = example_of_page("DynamicKafkaSource.builder()")
    # The page shows a stream without an end.
    example = f"from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer\n{example}"
    ending = "    .set_bounded(KafkaOffsetsInitializer.latest())\n    .build()"
    example = example.replace("    .build()", ending)
    page = (README.parent / "docs" / "kafka.md").read_text("utf-8")
    (streams,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    east, _, _ = streams.partition("    - clusterId: west")
    (tmp_path / "streams.yaml").write_text(east.replace("localhost:9092", kafka.bootstrap_servers), "utf-8")
    kafka.create_topic("orders")
    try:
        fill(kafka, "orders")
        printed = run_program(f"{example}\norders.print()\nenv.execute()\n", tmp_path)
    finally:
        kafka.delete_topic("orders")
    rows = Counter(line.rpartition("> ")[2] for line in printed.splitlines())
    assert rows == Counter(WORDS)


def test_the_example_of_the_page_writes_a_topic(kafka: KafkaCluster, tmp_path: Path) -> None:
    example = example_of_page("KafkaSink.builder()").replace("localhost:9092", kafka.bootstrap_servers)
    program = f"""from yarrow.common import Types
from yarrow.datastream import StreamExecutionEnvironment
{example}
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(500)
stream = env.from_collection({WORDS}, Types.STRING())
stream.sink_to(sink)
env.execute()
"""
    kafka.create_topic("counts")
    try:
        run_program(program, tmp_path)
        assert Counter(TopicUnderTest(kafka, "counts").rows()) == Counter(WORDS)
    finally:
        kafka.delete_topic("counts")


def test_the_examples_of_the_page_write_and_read_by_a_registry(
    kafka: KafkaCluster, registry: RegistryServer, tmp_path: Path
) -> None:
    writing = example_of_page("ConfluentRegistryAvroSerializationSchema")
    reading = example_of_page("ConfluentRegistryAvroDeserializationSchema")
    program = f"""from yarrow.common import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSink, KafkaSource
{writing}
env = StreamExecutionEnvironment.get_execution_environment()
sink = KafkaSink.builder().set_bootstrap_servers("localhost:9092").set_record_serializer(orders).build()
env.from_collection([{{"id": 1, "user": "ann"}}, {{"id": 2}}]).sink_to(sink)
env.execute()
{reading}
builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
source = builder.set_value_only_deserializer(orders).set_bounded(KafkaOffsetsInitializer.latest()).build()
env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").print()
env.execute()
"""
    for shown, ours in (
        ("http://localhost:8081", registry.url),
        ("localhost:9092", kafka.bootstrap_servers),
        ('"orders', '"orders-of-registry'),
    ):
        assert shown in program
        program = program.replace(shown, ours)
    kafka.create_topic("orders-of-registry")
    try:
        printed = run_program(program, tmp_path)
    finally:
        kafka.delete_topic("orders-of-registry")
    rows = {line.rpartition("> ")[2] for line in printed.splitlines()}
    assert rows == {"Row(id=1, user='ann')", "Row(id=2, user='nobody')"}
