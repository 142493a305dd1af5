"""Reads the letters of a topic into a file: `python -m yarrow.cli.letter_replay.topic_reading TOPIC PROPERTIES FILE`.

Owner: the main thread of a process of its own. The client of Kafka has threads, and a command with an embedded cluster
must not have them before its workers are forked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
)
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import execution

#: Partition, offset and value of a record with a value.
TopicLine = tuple[int, int, bytes]


class PlacedValues(KafkaRecordDeserializationSchema[TopicLine]):
    """Values with their places; tombstones give no row."""

    def deserialize(self, record: ConsumerRecord) -> Iterable[TopicLine]:
        """Return the row of a record."""
        return () if record.value is None else ((record.partition, record.offset, record.value),)

    def get_produced_type(self) -> TypeInformation:
        """The rows are pickled."""
        return Types.PICKLED_BYTE_ARRAY()


def properties_in(path: str) -> dict[str, str]:
    """The properties of a file, one `name=value` a line. Raises ValueError naming a line that is none."""
    found = {}
    for number, line in enumerate(Path(path).read_text().splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(("#", "!")):
            name, separator, value = text.partition("=")
            if not separator or not name.strip():
                raise ValueError(f"{path}, line {number}: name=value is expected")
            found[name.strip()] = value.strip()
    return found


def read_topic(topic: str, properties: dict[str, str], file: Path) -> None:
    """Write each record up to the present end of the topic as a line of JSON. Raises YarrowError."""
    source = (
        KafkaSource.builder().set_properties(properties).set_topics(topic).set_deserializer(PlacedValues())
    )
    bounded = source.set_bounded(KafkaOffsetsInitializer.latest()).build()
    configuration = Configuration()
    configuration.set_string(execution.TARGET.key, "local")
    configuration.set_string(execution.IN_PROCESS.key, "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    stream = env.from_source(bounded, WatermarkStrategy.no_watermarks(), topic)
    with stream.execute_and_collect("dead letters") as rows, file.open("wb") as written:
        for row in rows:
            written.write(msgspec.json.encode(row) + b"\n")


def main() -> int:
    """Read the topic; an error is the last line of standard error."""
    topic, properties, file = sys.argv[1:]
    try:
        read_topic(topic, properties_in(properties), Path(file))
    except YarrowError as error:
        # The failure of a job has the class of its cause in front, and tells the operator on further lines.
        print(re.sub(r"^[\w.]+Error: ", "", str(error).splitlines()[0]), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
