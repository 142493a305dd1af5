"""Programs of PyFlink's connectors.kafka, run by changed imports: they give the topics and rows that PyFlink gives.

PyFlink 2.3.0 with flink-sql-connector-kafka 4.0.1-2.0 wrote `WRITTEN` on 29 November 2026 by the program of this test,
and read it with the same rows. It has no Avro schema of rows any more: fastavro stands for it.
"""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest

from tests.cluster.embedded.waiting import DEADLINE
from tests.kafka.topic_under_test import TopicUnderTest
from tests.support.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "pyflink_programs"
#: A jar that no one has: nobody looks for it.
JAR = "file:///nowhere/flink-sql-connector-kafka.jar"
CITIES = [
    (1, "Rome", 2.75, True),
    (2, "a, b", -0.5, False),
    (3, 'say "hi"', 1234567.5, True),
    (4, "Zürich", 0.0, False),
]
CITY = {
    "type": "record",
    "name": "City",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": "string"},
        {"name": "people", "type": "double"},
        {"name": "capital", "type": "boolean"},
    ],
}


def as_avro(city: tuple[object, ...]) -> bytes:
    stream = io.BytesIO()
    names = ("id", "name", "people", "capital")
    fastavro.schemaless_writer(stream, CITY, dict(zip(names, city, strict=True)))
    return stream.getvalue()


#: (key, value) of each record, by the form of its topic.
WRITTEN: dict[str, list[tuple[bytes | None, bytes]]] = {
    "json": [
        (None, b'{"f0":1,"f1":"Rome","f2":2.75,"f3":true}'),
        (None, b'{"f0":2,"f1":"a, b","f2":-0.5,"f3":false}'),
        (None, b'{"f0":3,"f1":"say \\"hi\\"","f2":1234567.5,"f3":true}'),
        (None, '{"f0":4,"f1":"Zürich","f2":0.0,"f3":false}'.encode()),
    ],
    "csv": [
        (None, b"1,Rome,2.75,true\n"),
        (None, b'2,"a, b",-0.5,false\n'),
        (None, b'3,"say ""hi""",1234567.5,true\n'),
        (None, "4,Zürich,0.0,false\n".encode()),
    ],
    "text": [(None, name.encode()) for _, name, _, _ in CITIES],
    "bytes": [(None, b'{"id": %d}' % number) for number, _, _, _ in CITIES],
    "pairs": [(name.encode(), b"%d" % number) for number, name, _, _ in CITIES],
    "avro": [(None, as_avro(city)) for city in CITIES],
}
#: What the program that reads prints of each form.
READ = {
    **{form: [str(list(city)) for city in CITIES] for form in ("json", "csv", "avro")},
    "text": [name for _, name, _, _ in CITIES],
    "bytes": [f'{{"id": {number}}}' for number, _, _, _ in CITIES],
}


@pytest.fixture
def topics(kafka: KafkaCluster) -> Iterator[dict[str, TopicUnderTest]]:
    """The topics of the programs, by form."""
    made = {form: TopicUnderTest(kafka, f"cities-{form}") for form in WRITTEN}
    for topic in made.values():
        kafka.create_topic(topic.topic)
    yield made
    kafka.bring_back()
    for topic in made.values():
        kafka.delete_topic(topic.topic)


def started(name: str, kafka: KafkaCluster, folder: Path) -> subprocess.Popen[str]:
    """One of the programs with its imports changed."""
    script = folder / f"{name}.py"
    text = (PROGRAMS / f"{name}.txt").read_text("utf-8").replace("from pyflink.", "from yarrow.")
    assert "pyflink" not in text
    script.write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, str(script), kafka.bootstrap_servers, JAR],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def ran(name: str, kafka: KafkaCluster, folder: Path) -> tuple[list[str], str]:
    """Runs one of the programs; returns its output and its standard error."""
    with started(name, kafka, folder) as process:
        output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    return output.splitlines(), errors


def test_programs_write_and_read_what_pyflink_does(
    topics: dict[str, TopicUnderTest], kafka: KafkaCluster, tmp_path: Path
) -> None:
    _, told = ran("write_topics", kafka, tmp_path)
    for key in ("pipeline.jars", "pipeline.classpaths"):
        (line,) = [line for line in told.splitlines() if line.startswith(key)]
        assert "no jar is needed" in line and "pip install 'yarrow[kafka]'" in line
    for form, topic in topics.items():
        assert [(message.key(), message.value()) for message in topic.messages()] == WRITTEN[form], form
    printed, _ = ran("read_topics", kafka, tmp_path)
    for form, rows in READ.items():
        found = [line.partition(" ")[2] for line in printed if line.partition(" ")[0] == form]
        assert found == rows, form
    assert len(printed) == sum(map(len, READ.values()))


def test_the_older_consumer_reads_on(
    topics: dict[str, TopicUnderTest], kafka: KafkaCluster, tmp_path: Path
) -> None:
    ran("write_topics", kafka, tmp_path)
    with started("read_older", kafka, tmp_path) as process:
        assert process.stdout is not None
        rows = [process.stdout.readline().rstrip("\n") for _ in CITIES]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    assert rows == [
        f"Row(f0={number}, f1={name!r}, f2={people}, f3={capital})"
        for number, name, people, capital in CITIES
    ]
