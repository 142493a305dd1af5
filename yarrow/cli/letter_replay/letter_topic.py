"""LetterTopic: letters in a topic, up to the end that it has when the command looks.

Owner: the main thread. Another process reads the topic for the checks; must not load the client of Kafka here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec

from yarrow.cli.letter_replay.letter_input import PlacedLetter, placed
from yarrow.cli.letter_replay.topic_reading import TopicLine, properties_in
from yarrow.client.errors import CommandError
from yarrow.common.serialization import ByteArraySchema
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition

_SERVERS = "bootstrap.servers"


class LetterTopic:
    """The letters of a topic."""

    def __init__(self, topic: str, properties_file: str | None) -> None:
        """Raises CommandError for a file of properties that is missing or wrong, and if the topic cannot be read."""
        if properties_file is None:
            raise CommandError(
                f"The letters of topic {topic!r} need --kafka-properties FILE, with {_SERVERS} and what else the client"
                " needs, one name=value a line."
            )
        try:
            self._properties = properties_in(properties_file)
        except (OSError, ValueError) as error:
            raise CommandError(f"--kafka-properties cannot be read: {error}.") from None
        if _SERVERS not in self._properties:
            raise CommandError(
                f"{properties_file} has no {_SERVERS}, so nobody knows where topic {topic!r} is."
            )
        self._topic = topic
        self._folder = tempfile.TemporaryDirectory(prefix="yarrow-letters-", ignore_cleanup_errors=True)
        self._lines = f"{self._folder.name}/lines"
        try:
            self._read(properties_file)
        except BaseException:
            self._folder.cleanup()
            raise

    def _read(self, properties_file: str) -> None:
        without = ("YARROW_CONF_DIR", "FLINK_CONF_DIR")
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "yarrow.cli.letter_replay.topic_reading",
                self._topic,
                properties_file,
                self._lines,
            ],
            env={name: value for name, value in os.environ.items() if name not in without},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CommandError(f"The topic {self._topic!r} cannot be read: {_last_line(done.stderr)}")

    def letters(self) -> Iterator[PlacedLetter]:
        """Yield the letters. Raises CommandError naming partition and offset of what is no letter."""
        for partition, offset, value in self._records():
            yield placed(f"{self._topic}-{partition}, offset {offset}", value)

    def _records(self) -> Iterator[TopicLine]:
        decoder = msgspec.json.Decoder(TopicLine)
        with open(self._lines, "rb") as lines:
            for line in lines:
                yield decoder.decode(line)

    def source(self) -> Source[Any, Any]:
        """Return a bounded source of exactly these records."""
        first: dict[KafkaTopicPartition, int] = {}
        ends: dict[KafkaTopicPartition, int] = {}
        for number, offset, _ in self._records():
            partition = KafkaTopicPartition(self._topic, number)
            first.setdefault(partition, offset)
            ends[partition] = offset + 1
        builder = KafkaSource.builder().set_properties(self._properties).set_partitions(ends)
        builder.set_starting_offsets(KafkaOffsetsInitializer.offsets(first))
        builder.set_bounded(KafkaOffsetsInitializer.offsets(ends))
        return builder.set_value_only_deserializer(ByteArraySchema()).build()

    def size_bytes(self) -> int:
        """Return the bytes of the file into which the topic was read."""
        return os.path.getsize(self._lines)


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no error was told")
