"""The Kafka of the tests: it keeps its data over SIGKILL, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.kafka.__main__ import main
from tests.support.kafka.cluster import POM, KafkaCluster
from tests.support.kafka.run_clusters import OWN
from tests.support.services import class_archive, processes
from tests.support.services.jars import jar_folder
from tests.support.services.system_packages import java_home

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
#: Brings a Kafka up as a test run does, and then waits to be killed.
RUN = """
import time
from tests.support.kafka.run_clusters import cluster_of_run
with cluster_of_run(1) as cluster:
    print(cluster.directory, flush=True)
    time.sleep(600)
"""


def write(cluster: KafkaCluster, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(SECONDS) == 0


def read(cluster: KafkaCluster, topic: str, count: int) -> list[bytes]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"}
    consumer = Consumer({**settings, "enable.auto.commit": "false"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), SECONDS)
            assert messages, f"{len(found)} of {count} messages came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
        return found
    finally:
        consumer.close()


def test_killed_node_comes_back_with_its_data(kafka: KafkaCluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    rows = [b"row %d" % number for number in range(100)]
    write(kafka, topic, rows[:60])
    servers = kafka.bootstrap_servers
    kafka.kill("kafka1")
    assert [node.state for node in kafka.status()] == ["not running"]
    assert kafka.start("kafka1")
    kafka.wait_until_ready()
    assert kafka.bootstrap_servers == servers
    write(kafka, topic, rows[60:])
    assert read(kafka, topic, len(rows)) == rows


def test_nothing_is_left_when_a_run_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            directory = Path(run.stdout.readline().strip())
            assert str(directory).startswith(f"{OWN}-{run.pid}-")
            pids = [node.pid for node in KafkaCluster.at(directory).status()]
        finally:
            run.send_signal(signal.SIGKILL)
    records = [processes.identify(pid) for pid in pids if pid is not None]
    assert len(pids) == 1
    assert processes.wait_until_ended([record for record in records if record], SECONDS) == []
    # The guard holds the lock beside the folder until it has removed both.
    lock = Path(f"{directory}.lock")
    while directory.exists() or lock.exists():
        os.sched_yield()


def test_the_command_starts_shows_and_stops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--directory", str(tmp_path / "one")]
    assert main(["status", *place]) == 1
    assert main(["start", "kafka1", *place]) == 1
    assert "scripts/kafka up" in capsys.readouterr().err
    assert main(["up", *place]) == 0
    try:
        servers = KafkaCluster.at(tmp_path / "one").bootstrap_servers
        assert f"bootstrap servers {servers}" in capsys.readouterr().out
        assert main(["up", *place]) == 0
        assert "runs already" in capsys.readouterr().out
        assert main(["status", *place]) == 0
        assert main(["kill", "kafka3", *place]) == 1
        assert "kafka3" in capsys.readouterr().err
    finally:
        assert main(["down", *place]) == 0
    assert main(["down", *place]) == 0
    assert list(tmp_path.iterdir()) == []


def test_java_takes_the_archive_that_it_has_written_also_with_a_folder_behind_the_jars(
    tmp_path: Path,
) -> None:
    java, jars = str(java_home()), tmp_path / "jars"
    jars.mkdir()
    for jar in jar_folder(POM, "kafka").glob("*.jar"):
        (jars / jar.name).symlink_to(jar)
    (tmp_path / "a file").touch()

    def random_uuid(*flags: str) -> str:
        command = [f"{java}/bin/java", "-XX:+UseSerialGC", *flags, "-cp", f"{jars}/*:{tmp_path}"]
        done = subprocess.run(
            [*command, "kafka.tools.StorageTool", "random-uuid"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    random_uuid(*class_archive.daemon_flags(java, jars))
    class_archive.write(java, jars)
    # With -Xshare:on Java ends if it cannot take the archive.
    flags = class_archive.use_flags(java, jars)
    assert len(flags) > 1
    assert len(random_uuid("-Xshare:on", *flags).split()) == 1
