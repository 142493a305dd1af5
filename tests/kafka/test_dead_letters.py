"""Messages of a real topic that cannot be read: left out or put aside, each once over a failure of the job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.failing_functions import FailsOnceBehindACheckpoint
from tests.support.kafka.cluster import KafkaCluster
from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.common import SimpleStringSchema, Types, WatermarkStrategy
from yarrow.common.restart_strategy import RestartStrategies
from yarrow.datastream import (
    OutputTag,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors import DEAD_LETTERS, DeadLetter
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource, KafkaSourceBuilder
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.kafka

ROWS = 400


def written(kafka: KafkaCluster, topic: str) -> None:
    """Writes numbers; each tenth message is no text, with a key and a header."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(ROWS):
        if number % 10 == 3:
            headers: list[tuple[str, Any]] = [("n", str(number).encode())]
            producer.produce(topic, b"\xff%d" % number, b"key", headers=headers, timestamp=1000 + number)
        else:
            producer.produce(topic, str(number).encode())
    assert producer.flush(60) == 0


def numbers_of(kafka: KafkaCluster, topic: str) -> KafkaSourceBuilder:
    builder = KafkaSource.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_topics(topic)
    builder.set_value_only_deserializer(SimpleStringSchema())
    return builder.set_bounded(KafkaOffsetsInitializer.latest())


def test_a_bad_message_is_left_out_or_put_aside(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    written(kafka, topic)
    good = [str(number) for number in range(ROWS) if number % 10 != 3]
    bad = [number for number in range(ROWS) if number % 10 == 3]
    for policy in ("skip", "dead_letter"):
        harness = SourceHarness(numbers_of(kafka, topic).on_error(policy).build())
        assert harness.run() == good and harness.num_errors == len(bad)
        harness.close()
        letters = [letter for tag, letter in harness.side if tag == DEAD_LETTERS]
        assert [letter.position for letter in letters] == (bad if policy == "dead_letter" else [])
        for letter in letters:
            number = letter.position
            assert letter.raw == b"\xff%d" % number and letter.key == b"key"
            assert (letter.timestamp, letter.headers) == (1000 + number, (("n", str(number).encode()),))
            assert letter.split == f"{topic}-0" and "UnicodeDecodeError" in letter.traceback


class FailsOnce:
    """Fails at the sight of one letter, in all attempts together once."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __call__(self, letter: DeadLetter) -> tuple[str, int]:
        if letter.position == 203 and not self._mark.exists():
            self._mark.touch()
            raise ValueError("a letter fails once")
        return letter.operator, letter.position


def test_letters_come_once_over_a_failure(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    written(kafka, topic)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(50)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    source = numbers_of(kafka, topic).on_error("dead_letter", max_share=0.5).build()
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers of the topic")
    letters = stream.get_side_output(OutputTag(DEAD_LETTERS)).map(FailsOnce(tmp_path / "failed"))
    with mini_cluster(processes=False), letters.execute_and_collect() as rows:
        found = sorted(rows)
    assert found == [("numbers of the topic", number) for number in range(3, ROWS, 10)]
    assert (tmp_path / "failed").exists()


def refuses_sevens(text: str) -> int:
    if text.endswith("7"):
        raise ValueError(f"no {text}")
    return int(text)


def test_letters_of_a_function_lie_once_in_a_topic(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    read, letters = new_topic(), TopicUnderTest(kafka, new_topic())
    written(kafka, read)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    source = numbers_of(kafka, read).on_error("skip").build()
    texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.STRING())
    parsed = texts.map(refuses_sevens, Types.INT()).uid("parse").on_error("dead_letter", max_share=0.5)
    parsed.map(FailsOnceBehindACheckpoint(tmp_path / "failed", 0.005)).print()
    parsed.dead_letters().map(DeadLetter.to_json, Types.STRING()).sink_to(letters.sink())
    with mini_cluster(processes=False):
        env.execute("letters to a topic")
    assert (tmp_path / "failed").exists()
    found = [DeadLetter.from_json(row) for row in letters.rows()]
    assert sorted(letter.error for letter in found) == sorted(
        f"ValueError: no {number}" for number in range(7, ROWS, 10)
    )
    assert {letter.operator for letter in found} == {"parse"} and not letters.leftovers()


def test_records_that_a_sink_refuses_lie_once_in_another_topic(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    good, letters = TopicUnderTest(kafka, new_topic()), TopicUnderTest(kafka, new_topic())
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(100)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
    # Each tenth text is above the limit of the client, and each tenth is none.
    rows: list[Any] = [
        "x" * 3000 if number % 10 == 4 else number if number % 10 == 5 else str(number)
        for number in range(ROWS)
    ]
    texts = env.from_collection(rows).map(FailsOnceBehindACheckpoint(tmp_path / "failed", 0.005))
    sink = texts.sink_to(good.sink(properties={"max.request.size": 2000})).uid("good")
    sink.on_error("dead_letter", max_share=0.9)
    sink.dead_letters().map(DeadLetter.to_json, Types.STRING()).sink_to(letters.sink())
    with mini_cluster(processes=False):
        env.execute("refused records")
    assert (tmp_path / "failed").exists()
    assert sorted(good.rows()) == sorted(str(n) for n in range(ROWS) if n % 10 not in (4, 5))
    found = [DeadLetter.from_json(row) for row in letters.rows()]
    assert {letter.operator for letter in found} == {"good"}
    large = [letter for letter in found if "max.request.size is 2000" in letter.error]
    assert len(large) == ROWS // 10 and len(found) == ROWS // 5
    assert not good.leftovers() and not letters.leftovers()


#: Reads what the first program refused: bytes that are no UTF-8, and numbers that end with 7.
_REPAIRED = """
import sys
from yarrow.common import SimpleStringSchema, Types, WatermarkStrategy
from yarrow.common.serialization import DeserializationSchema
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource

servers, topic = sys.argv[1:]


class Repaired(SimpleStringSchema):
    def deserialize(self, message):
        return message.removeprefix(bytes([255])).decode()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(topic)
builder.set_value_only_deserializer(Repaired()).set_bounded(KafkaOffsetsInitializer.latest())
source = builder.on_error("dead_letter").build()
texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.STRING()).uid("texts")
texts.map(lambda text: "again " + text if text.endswith("3") else text, Types.STRING()).uid("parse").print()
env.execute("repaired")
"""


def test_letters_in_a_topic_are_replayed_by_source_and_function(
    kafka: KafkaCluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    read, letters = new_topic(), TopicUnderTest(kafka, new_topic(partitions=2))
    written(kafka, read)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1).enable_checkpointing(100)
    source = numbers_of(kafka, read).on_error("dead_letter").build()
    texts = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers", Types.STRING()).uid("texts")
    parsed = texts.map(refuses_sevens, Types.INT()).uid("parse").on_error("dead_letter", max_share=0.5)
    both = parsed.dead_letters().union(texts.get_side_output(OutputTag(DEAD_LETTERS)))
    both.map(DeadLetter.to_json, Types.STRING()).sink_to(letters.sink())
    with mini_cluster(processes=False):
        env.execute("letters to a topic")
    (tmp_path / "kafka.properties").write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")
    (tmp_path / "job.py").write_text(_REPAIRED)
    program = ["job.py", kafka.bootstrap_servers, read]
    flags = ["--kafka-properties", "kafka.properties", f"topic:{letters.topic}"]
    done = subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", "replay-dead-letters", *flags, *program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = [line for line in done.stdout.splitlines() if line.removeprefix("again ").isdigit()]
    expected = [f"again {number}" for number in range(3, ROWS, 10)]
    assert sorted(shown) == sorted(expected + [str(number) for number in range(7, ROWS, 10)])
    assert done.stdout.splitlines()[-3:] == [
        f"Dead letters of 'parse': {ROWS // 10} replayed, 0 refused again, 0 skipped",
        f"Dead letters of 'texts': {ROWS // 10} replayed, 0 refused again, 0 skipped",
        f"Dead letters: {ROWS // 5} replayed, 0 refused again, 0 skipped",
    ]
