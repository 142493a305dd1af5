"""A job that goes on from a savepoint reads by the schema of its first start, whatever the registry has got since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.cluster.embedded.waiting import wait_until
from tests.kafka.test_message_formats import written
from tests.kafka.test_registry_avro import FIRST, SECOND, Writer
from tests.support.kafka.cluster import KafkaCluster
from tests.support.registry.server import RegistryServer
from yarrow.common import WatermarkStrategy
from yarrow.datastream import DataStream, StreamExecutionEnvironment
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.formats.registry import ConfluentRegistryAvroDeserializationSchema, RegistrySubject
from yarrow.datastream.formats.registry.json_schema import ConfluentRegistryJsonDeserializationSchema
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import InvalidProgramError

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=1) as running:
        yield running


class Program:
    """Reads a topic by a schema of the registry, and notes the rows in a file."""

    def __init__(self, cluster: MiniCluster, folder: Path, kafka: KafkaCluster, topic: str, url: str) -> None:
        self._cluster = cluster
        self._folder = folder
        self._kafka = kafka
        self.topic = topic
        self._url = url
        self._notes = folder / "rows"
        self._notes.touch()

    def noted(self) -> list[str]:
        """The rows of all jobs."""
        return self._notes.read_text().splitlines()

    def run(
        self,
        version: int | None,
        rows: list[str],
        savepoint: str = "",
        *,
        makes_rows: bool = True,
        topics: Mapping[str, str] | None = None,
    ) -> str:
        """Run a job until these rows are noted; return the savepoint with which it stops.

        `topics`: the topic of each source, by its uid. All have the name "orders" and read by one subject.
        """
        client = self._submitted(version, savepoint, makes_rows, topics or {"orders": self.topic})
        wait_until(lambda: len(self.noted()) >= len(rows), lambda: f"noted: {self.noted()}")
        assert sorted(self.noted()) == sorted(rows)
        return client.stop_with_savepoint(False, f"{self._folder}/savepoints").result()

    def _submitted(
        self, version: int | None, savepoint: str, makes_rows: bool, topics: Mapping[str, str]
    ) -> LocalJobClient:
        settings = {"parallelism.default": "1", "execution.checkpointing.interval": "1 s"}
        if savepoint:
            settings["execution.state-recovery.path"] = savepoint
        env = self._cluster.get_execution_environment(settings)
        notes = str(self._notes)

        def note(row: Any) -> str:
            with open(notes, "a", encoding="utf-8") as file:
                file.write(f"{row}\n")
            return str(row)

        for uid, topic in topics.items():
            stream = self.source(env, version, topic, makes_rows=makes_rows).uid(uid)
            stream.map(note).uid(f"note {uid}").print().uid(f"print {uid}")
        return self._cluster.submit(env.get_job_graph("orders"))

    def source(
        self,
        env: StreamExecutionEnvironment,
        version: int | None,
        topic: str | None = None,
        *,
        makes_rows: bool = True,
    ) -> DataStream:
        """The records of a topic, the program's own by default, by a version of the program's subject."""
        reader = ConfluentRegistryAvroDeserializationSchema
        made = reader.for_row_type_info if makes_rows else reader.for_generic
        schema = made(RegistrySubject(f"{self.topic}-value", version), self._url)
        builder = KafkaSource.builder().set_bootstrap_servers(self._kafka.bootstrap_servers)
        source = builder.set_topics(topic or self.topic).set_value_only_deserializer(schema).build()
        return env.from_source(source, WatermarkStrategy.no_watermarks(), "orders")


@pytest.mark.parametrize("makes_rows", [True, False], ids=["rows", "dicts"])
def test_a_savepoint_keeps_the_schema_of_the_first_start(
    cluster: MiniCluster,
    kafka: KafkaCluster,
    registry: RegistryServer,
    client: SchemaRegistryClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
    makes_rows: bool,
) -> None:
    program = Program(cluster, tmp_path, kafka, new_topic(), registry.url)
    writer = Writer(client)

    def write(schema_id: int, schema: Any, *records: Any) -> None:
        written(kafka, program.topic, [writer.message(schema_id, schema, record) for record in records])

    def shown(**fields: Any) -> str:
        text = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        return f"Row({text})" if makes_rows else str(fields)

    first = writer.register(f"{program.topic}-value", FIRST)
    write(first, FIRST, {"id": 1})
    rows = [shown(id=1)]
    savepoint = program.run(None, rows, makes_rows=makes_rows)
    second = writer.register(f"{program.topic}-value", SECOND)
    # The program has not changed: it asks for the latest version again.
    write(second, SECOND, {"id": 2, "user": "ann"})
    rows += [shown(id=2)]
    savepoint = program.run(None, rows, savepoint, makes_rows=makes_rows)
    # A program that names the version has been changed.
    write(second, SECOND, {"id": 3, "user": "bob"})
    rows += [shown(id=3, user="bob")]
    program.run(2, rows, savepoint, makes_rows=makes_rows)


def test_two_sources_of_one_subject_keep_each_its_own_version(
    cluster: MiniCluster,
    kafka: KafkaCluster,
    registry: RegistryServer,
    client: SchemaRegistryClient,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    program = Program(cluster, tmp_path, kafka, new_topic(), registry.url)
    other, writer = new_topic(), Writer(client)
    first = writer.register(f"{program.topic}-value", FIRST)
    written(kafka, program.topic, [writer.message(first, FIRST, {"id": 1})])
    rows = ["Row(id=1)"]
    savepoint = program.run(None, rows)
    second = writer.register(f"{program.topic}-value", SECOND)
    both = {"other": other, "orders": program.topic}
    # The other source is new, so it reads by the version of this day.
    for start in (2, 4):
        written(kafka, program.topic, [writer.message(second, SECOND, {"id": start, "user": "ann"})])
        written(kafka, other, [writer.message(second, SECOND, {"id": start + 1, "user": "bob"})])
        rows += [f"Row(id={start})", f"Row(id={start + 1}, user='bob')"]
        savepoint = program.run(None, rows, savepoint, topics=both)
        third = {**SECOND, "fields": [*SECOND["fields"], {"name": "at", "type": "long", "default": 0}]}
        writer.register(f"{program.topic}-value", third)
    late = program.source(
        cluster.get_execution_environment({"execution.state-recovery.path": savepoint}), None
    )
    late.map(str)
    with pytest.raises(
        InvalidProgramError, match=r"'orders' reads by version 1 .* call uid\(\) directly behind"
    ):
        late.uid("orders")


def test_a_reader_of_json_keeps_its_schema(registry: RegistryServer, client: SchemaRegistryClient) -> None:
    made = ConfluentRegistryJsonDeserializationSchema.for_row_type_info
    subject = RegistrySubject("kept-json")

    def register(**fields: str) -> None:
        properties = {name: {"type": kind} for name, kind in fields.items()}
        text = json.dumps({"title": "Order", "type": "object", "properties": properties})
        client.register_schema(subject.subject, Schema(text, "JSON", []))

    register(id="integer")
    first = made(subject, registry.url)
    kept = first.kept_schema()
    register(id="integer", user="string")
    second = made(subject, registry.url)
    own = second.kept_schema()
    assert kept is not None and own is not None
    assert kept.stays(own) and kept.shown.startswith("version 1")
    assert second.get_produced_type() != first.get_produced_type()
    assert second.with_kept_schema(kept).get_produced_type() == first.get_produced_type()
    assert second.with_kept_schema(kept).kept_schema() == kept
