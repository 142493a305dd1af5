"""YarnClusterDescriptor on a real YARN: sessions from nothing to their end, and every way in which none comes about."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.highly_available import ClusterNodes, high_availability, is_stored, zookeeper_client
from tests.yarn.rest import ask
from tests.yarn.waiting import GRACE, until
from yarrow.client.rest.relay import Relay
from yarrow.client.yarn import deployment
from yarrow.client.yarn.applications import rest_of
from yarrow.client.yarn.cluster_descriptor import YarnCluster, YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, FinalStatus, YarnError, YarnState

#: Seconds for what YARN does by itself; a machine under load is slow.
PATIENCE = 120.0
ROOT = f"/yarrow-ends-{os.getpid()}"
#: The cluster may be used by others as well.
NAME = f"session of tests {os.getpid()}"
UNKNOWN = "application_1700000000000_0001"
PAGE = "<!doctype html><title>of the client</title>"
#: Nobody listens there.
DEAD = "127.0.0.1:1"


@pytest.fixture
def settings(hadoop: HadoopCluster, hadoop_environment: None, tmp_path: Path) -> Settings:
    """Small containers; what a client keeps lies in the test's own folder, and the page that REST shows."""
    pages = tmp_path / "pages.jar"
    with zipfile.ZipFile(pages, "w") as archive:
        archive.writestr("web/index.html", PAGE)
    return Settings(
        {
            "web.pages": str(pages),
            "yarn.application.name": NAME,
            "yarn.environment": "none",
            "yarn.properties-file.location": str(tmp_path / "files"),
            "yarn.deployment-timeout": "3 min",
            "jobmanager.memory.process.size": "640m",
            "taskmanager.memory.process.size": "640m",
        }
    )


@pytest.fixture
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process makes its temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def said() -> list[str]:
    """What deployments told their user."""
    return []


@pytest.fixture
def descriptor(
    settings: Settings, said: list[str], temporary_folder: Path
) -> Iterator[YarnClusterDescriptor]:
    """It closes after the test, and has left no temporary file then."""
    with YarnClusterDescriptor(settings, said.append) as made:
        yield made
    assert list(temporary_folder.iterdir()) == []


def asked(cluster: YarnCluster, method: str, path: str, token: str | None = None) -> Any:
    return ask(cluster.rest_address, cluster.rest_token if token is None else token, path, method)


def page_at(address: str) -> str:
    with urllib.request.urlopen(f"{address}/", timeout=GRACE) as answer:
        return str(answer.read().decode())


def eventually(condition: Callable[[], bool], what: str) -> None:
    until(condition, PATIENCE, what)


def user_files(hadoop: HadoopCluster) -> set[str]:
    """Applications of these tests that have ended and of which Skein keeps files on HDFS."""
    folder = f"{hadoop.hdfs_url}/user/{getpass.getuser()}/.skein"
    try:
        kept = {entry.name for entry in file_system_for(folder).list(folder)}
    except FileNotFoundError:
        return set()
    ended = hadoop.applications(("FINISHED", "FAILED", "KILLED"))
    return kept & {entry["id"] for entry in ended if entry["name"] == NAME}


def own_applications(hadoop: HadoopCluster) -> set[str]:
    return {entry["id"] for entry in hadoop.applications() if entry["name"] == NAME}


def test_a_session_from_nothing_to_its_end(
    hadoop: HadoopCluster, descriptor: YarnClusterDescriptor, settings: Settings
) -> None:
    session = descriptor.deploy_session()
    assert asked(session, "GET", "/overview")["slots-total"] == 0
    with pytest.raises(urllib.error.HTTPError, match="401"):
        asked(session, "GET", "/overview", token="guessed")

    # The page came with the application; a browser, which sends no token, sees it through the relay.
    with pytest.raises(urllib.error.HTTPError, match="401"):
        page_at(session.rest_address)
    secrets = descriptor.files.read_secrets(session.application_id)
    assert secrets is not None
    with Relay(rest_of(settings, secrets)) as relay:
        serving = threading.Thread(target=relay.serve)
        serving.start()
        try:
            assert page_at(relay.address) == PAGE
        finally:
            relay.close()
            serving.join()
    assert asked(session, "GET", "/applications/overview") == {"applications": []}

    kept = descriptor.files.folder / f".yarrow-application-{session.application_id}"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    report = hadoop.application(session.application_id)
    assert session.rest_token not in json.dumps(report)

    # Another client finds it without a JVM, by the file; and by the master where the file's address is stale.
    with YarnClusterDescriptor(settings) as other:
        assert other.retrieve(session.application_id) == session
        secrets = other.files.read_secrets(session.application_id)
        assert secrets is not None
        other.files.write_secrets(msgspec.structs.replace(secrets, rest_address=f"http://{DEAD}"))
        assert other.retrieve(session.application_id) == session
        assert descriptor.files.read_secrets(session.application_id) == secrets

    assert asked(session, "DELETE", "/cluster") == {}
    client = descriptor.client((b"", b""))
    eventually(lambda: client.report(session.application_id).state.has_ended, "the session has ended")
    assert client.report(session.application_id).final_status is FinalStatus.SUCCEEDED
    with pytest.raises(YarnError, match=r"has ended: FINISHED, SUCCEEDED"):
        descriptor.retrieve(session.application_id)
    assert not kept.exists()
    eventually(lambda: user_files(hadoop) == set(), "its files are gone")


def test_a_killed_session_is_gone_with_all_that_it_stored(
    hadoop: HadoopCluster, settings: Settings, hdfs_folder: str
) -> None:
    own = high_availability(hadoop.zookeeper_quorum, ROOT, hdfs_folder)
    with (
        zookeeper_client(hadoop.zookeeper_quorum) as zookeeper,
        YarnClusterDescriptor(settings.overlay(own)) as descriptor,
    ):
        session = descriptor.deploy_session()
        nodes = ClusterNodes(zookeeper, f"{ROOT}/{session.application_id}")
        eventually(nodes.exists, "it stores something")
        descriptor.kill(session.application_id)
        client = descriptor.client((b"", b""))
        eventually(lambda: client.report(session.application_id).state is YarnState.KILLED, "it is killed")
        until(lambda: not nodes.exists(), GRACE, "nothing of it is in ZooKeeper")
        until(lambda: not is_stored(hdfs_folder, session.application_id), GRACE, "nor on HDFS")
        eventually(lambda: user_files(hadoop) == set(), "its files are gone")
        assert descriptor.files.known_applications() == []
        # Once more is no error.
        descriptor.kill(session.application_id)
        zookeeper.retry(zookeeper.delete, ROOT, recursive=True)


def test_a_master_that_fails_says_why_with_its_log(
    hadoop: HadoopCluster, settings: Settings, temporary_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine gathers logs late, and a user would no longer wait for them.
    monkeypatch.setattr(deployment, "_LOGS_SECONDS", GRACE)
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        broken = settings.overlay({"rest.bind-port": port, "rest.port": port})
        with (
            YarnClusterDescriptor(broken) as descriptor,
            pytest.raises(YarnError, match=r"ended as \w+ before it was ready") as failed,
        ):
            descriptor.deploy_session()
    assert port in str(failed.value)
    assert "The end of " in str(failed.value)
    assert_nothing_left(hadoop, descriptor)
    assert list(temporary_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"yarn.application.queue": "nowhere"}, r"no queue 'nowhere'.*there are: default, small"),
        (
            {"flink.yarn.resourcemanager.address": DEAD},
            r"ResourceManager does not answer; tried 127\.0\.0\.1:1",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(
    hadoop: HadoopCluster, settings: Settings, temporary_folder: Path, wrong: dict[str, str], message: str
) -> None:
    with YarnClusterDescriptor(settings.overlay(wrong)) as descriptor:
        with pytest.raises(YarnError, match=message):
            descriptor.deploy_session()
        assert_nothing_left(hadoop, descriptor)
    assert list(temporary_folder.iterdir()) == []


def test_without_the_web_server_yarn_itself_refuses(hadoop: HadoopCluster, settings: Settings) -> None:
    blind = settings.overlay({"flink.yarn.resourcemanager.webapp.address": DEAD})
    with YarnClusterDescriptor(blind.overlay({"yarn.application.queue": "nowhere"})) as descriptor:
        with pytest.raises(YarnError, match=r"no queue 'nowhere'.*There are: default, small"):
            descriptor.deploy_session()
        with pytest.raises(ApplicationNotFoundError, match=UNKNOWN):
            descriptor.retrieve(UNKNOWN)
        assert_nothing_left(hadoop, descriptor)


def test_an_unknown_application_is_told(descriptor: YarnClusterDescriptor) -> None:
    for ask_for in (descriptor.retrieve, descriptor.kill):
        with pytest.raises(ApplicationNotFoundError, match=UNKNOWN):
            ask_for(UNKNOWN)
    with pytest.raises(YarnError, match="no application's id"):
        descriptor.retrieve("../../etc/passwd")


def test_a_session_that_is_not_granted_says_why_and_is_given_up(
    hadoop: HadoopCluster, settings: Settings, said: list[str], temporary_folder: Path
) -> None:
    # More than the queue can ever have, less than one container may.
    wanted = {
        "yarn.application.queue": "small",
        "jobmanager.memory.process.size": "3g",
        "yarn.deployment-timeout": "25 s",
    }
    with YarnClusterDescriptor(settings.overlay(wanted), said.append) as descriptor:
        with pytest.raises(
            YarnError, match=r"not ready after 25 s \(yarn\.deployment-timeout\) and is killed"
        ):
            descriptor.deploy_session()
        assert_nothing_left(hadoop, descriptor)
    assert any("3072 MiB" in sentence and "queue" in sentence for sentence in said), said
    assert len(said) == len(set(said))


def test_an_interrupted_deployment_leaves_nothing(
    hadoop: HadoopCluster, settings: Settings, tmp_path: Path
) -> None:
    before = own_applications(hadoop)
    program = (
        "import sys, json\n"
        "from yarrow.runtime.config.settings import Settings\n"
        "from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor\n"
        "with YarnClusterDescriptor(Settings(json.loads(sys.argv[1]))) as descriptor:\n"
        "    descriptor.deploy_session()\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps(settings.to_dict(redact=False))],
        env={**os.environ, "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
    )
    try:
        eventually(lambda: own_applications(hadoop) - before != set(), "it is submitted")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert b"KeyboardInterrupt" in errors
    (submitted,) = own_applications(hadoop) - before
    eventually(lambda: hadoop.application(submitted)["state"] == "KILLED", "it is killed")
    eventually(lambda: user_files(hadoop) == set(), "its files are gone")
    assert list(temporary.iterdir()) == []
    assert list(tmp_path.glob("files/.*")) == []


def assert_nothing_left(hadoop: HadoopCluster, descriptor: YarnClusterDescriptor) -> None:
    assert descriptor.files.known_applications() == []
    eventually(lambda: user_files(hadoop) == set(), "no file of an application is left on HDFS")
    waiting = ("NEW", "SUBMITTED", "ACCEPTED")
    eventually(
        lambda: all(entry["name"] != NAME for entry in hadoop.applications(waiting)),
        "no application waits on YARN",
    )
