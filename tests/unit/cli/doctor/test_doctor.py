"""The doctor on a client with one thing wrong: the line that says so, and the exit status."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from tests.unit.runtime.fs.fake_webhdfs import Fault, fake_webhdfs
from yarrow.cli.doctor import doctor_client, doctor_hadoop
from yarrow.cli.doctor.doctor import doctor
from yarrow.cli.doctor.doctor_findings import Finding, Level
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, hdfs_settings, use_hdfs_settings
from yarrow.runtime.fs.webhdfs_sessions import close_sessions
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration


def only(findings: Iterator[Finding], level: Level) -> Finding:
    (found,) = [finding for finding in findings if finding.level is level]
    return found


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_no_hadoop_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    shown: list[str] = []
    assert doctor(Settings({"yarn.environment": "none"}), shown.append) == 1
    assert [line for line in shown if line.startswith("FAIL")] == [
        f"FAIL  java: JAVA_HOME is {tmp_path}/nowhere, but there is no {tmp_path}/nowhere/bin/java: set it to"
        " the folder of a JRE",
        "FAIL  yarn: there is no `yarn` program on PATH: add the bin folder of Hadoop to PATH",
        "FAIL  hadoop: No Hadoop cluster is named: set HADOOP_CONF_DIR or YARN_CONF_DIR (or env.hadoop.conf.dir,"
        " env.yarn.conf.dir) to the folder with its core-site.xml and yarn-site.xml.",
    ]
    assert shown[0].startswith("WARN  python: yarn.environment is none: every node needs Python 3.")


@pytest.mark.parametrize(
    ("answer", "level", "text"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Level.OK, "Java 17.0.15 at"),
        ('java version "1.8.0_392"', Level.OK, "Java 8.0_392 at"),
        ('java version "1.7.0_80"', Level.FAIL, "is Java 7; Skein needs 8 or newer: set JAVA_HOME"),
        ("Segmentation fault", Level.FAIL, "does not tell its version: Segmentation fault"),
    ],
)
def test_versions_of_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, level: Level, text: str
) -> None:
    program(tmp_path / "bin", "java", f"echo '{answer}' >&2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert text in only(doctor_client.java(), level).text


@pytest.mark.parametrize(
    ("script", "level", "text"),
    [
        ("echo /h/share/hadoop-yarn-client-3.5.0.jar:/h/other.jar", Level.OK, "2 jars on its class path"),
        ("echo /package-manager/cache.jar", Level.FAIL, "names 1 jars and no hadoop-yarn-client"),
        ("echo 'usage: yarn install' >&2; exit 3", Level.FAIL, "ended with status 3: usage: yarn install"),
    ],
)
def test_the_yarn_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, level: Level, text: str
) -> None:
    program(tmp_path, "yarn", script)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    assert text in only(doctor_client.yarn_program(), level).text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"execution.checkpointing.dir": "/tmp/x"},
            "execution.checkpointing.dir is /tmp/x: on YARN every node has another",
        ),
        (
            {"yarn.ship-files": "/nowhere/x"},
            "/nowhere/x is to be shipped (yarn.ship-files), and there is no such file",
        ),
        ({"taskmanager.memory.process.size": "1 kb"}, "taskmanager.memory.process.size"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, object], text: str) -> None:
    assert text in only(doctor_client.settings(Settings(settings)), Level.FAIL).text


def test_zookeeper_is_asked_where_it_is_needed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        alive = [f"127.0.0.1:{one.getsockname()[1]}" for one in (server, other)]
        base = {"high-availability.type": "zookeeper", "high-availability.storageDir": "hdfs:///ha"}

        def found(quorum: str) -> list[Finding]:
            return list(
                doctor_client.zookeeper(Settings({**base, "high-availability.zookeeper.quorum": quorum}))
            )

        assert list(doctor_client.zookeeper(Settings())) == []
        assert found(",".join(alive))[0].level is Level.OK
        assert found(",".join([*alive, "127.0.0.1:1"]))[0].level is Level.WARN
        (failed,) = found(f"{alive[0]},127.0.0.1:1")
        assert failed.level is Level.FAIL
        assert "127.0.0.1:1" in failed.text
    assert (
        "is not set" in next(doctor_client.zookeeper(Settings({"high-availability.type": "zookeeper"}))).text
    )


class _NameNode(BaseHTTPRequestHandler):
    """Answers as a NameNode's web server; `state` and `ahead` say how it is."""

    state: dict[str, object] = {}  # noqa: RUF012
    ahead = 0.0

    def do_GET(self) -> None:
        data = json.dumps({"beans": [self.state]}).encode()
        self.send_response_only(200)
        self.send_header("Date", formatdate(SystemClock().epoch_ms() / 1000 + self.ahead, usegmt=True))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def name_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HadoopConfiguration]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _NameNode)
    with running_in_thread(server, "name-node"):
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        address = f"127.0.0.1:{server.server_port}"
        yield hadoop(tmp_path, {"fs.defaultFS": f"hdfs://{address}", "dfs.namenode.http-address": address})


def hadoop(folder: Path, properties: dict[str, str]) -> HadoopConfiguration:
    text = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in properties.items()
    )
    for name in ("core-site.xml", "yarn-site.xml"):
        (folder / name).write_text(f"<configuration>{text}</configuration>")
    return HadoopConfiguration.load(Settings(), {"HADOOP_CONF_DIR": str(folder)})


def test_safe_mode(name_node: HadoopConfiguration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_NameNode, "state", {"FSState": "safeMode", "NumLiveDataNodes": 1})
    assert "safe mode" in only(doctor_hadoop.hdfs(Settings(), name_node), Level.FAIL).text


def test_a_name_node_that_takes_no_changes_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its page may be out of reach, as where it asks for Kerberos: then only a write shows safe mode."""
    refusal = "Cannot do this. Name node is in safe mode."
    faults = [
        Fault(name, "SafeModeException", refusal, times=1000) for name in ("create", "mkdirs", "delete")
    ]
    seconds = 0.3
    former = use_hdfs_settings(HdfsSettings(retry_seconds=seconds))
    try:
        with fake_webhdfs(tmp_path, faults) as url:
            monkeypatch.setattr(doctor_hadoop, "staging_root", lambda config: f"{url}/staging")
            found = only(doctor_hadoop._staging(Settings()), Level.FAIL)
            assert hdfs_settings().retry_seconds == seconds
            close_sessions()
    finally:
        use_hdfs_settings(former)
    assert "the NameNode is in safe mode" in found.text and "yarn.staging-directory" in found.text
    create, mkdirs, delete = (1000 - fault.times for fault in faults)
    # The removal is one attempt, which a connection that has just gone takes with it.
    assert create + mkdirs > 1 and delete <= 1, "the write is repeated for a while, its removal is not"


def test_no_data_node(name_node: HadoopConfiguration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_NameNode, "state", {"FSState": "Operational", "NumLiveDataNodes": 0})
    assert "no DataNode is alive" in only(doctor_hadoop.hdfs(Settings(), name_node), Level.FAIL).text


def test_little_space_and_clocks_that_differ(
    name_node: HadoopConfiguration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_NameNode, "state", {"CapacityRemaining": 1 << 30, "NumLiveDataNodes": 1})
    monkeypatch.setattr(_NameNode, "ahead", -60.0)
    texts = [found.text for found in doctor_hadoop.hdfs(Settings(), name_node) if found.level is Level.WARN]
    assert texts[0].startswith("only 1.1 GB are free")
    assert "s behind this machine's: set both by NTP" in texts[1]
    monkeypatch.setattr(_NameNode, "ahead", 400.0)
    clocks = [found for found in doctor_hadoop.hdfs(Settings(), name_node) if found.subject == "clock"]
    assert clocks[0].level is Level.FAIL
    # This server has no WebHDFS: a finding, no traceback.
    written = [found for found in doctor_hadoop.hdfs(Settings(), name_node) if found.level is Level.FAIL]
    assert "what answers is no WebHDFS" in written[-1].text
    assert "s ahead of this machine's" in clocks[0].text


def test_a_single_name_node_that_nodes_do_not_wait_for_is_warned_of_where_masters_come_back(
    name_node: HadoopConfiguration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(found: HadoopConfiguration, kind: str) -> bool:
        findings = list(doctor_hadoop.hdfs(Settings({"high-availability.type": kind}), found))
        key = "Set dfs.client.retry.policy.enabled to true for the NodeManagers"
        return any(one.level is Level.WARN and key in one.text for one in findings)

    monkeypatch.setattr(_NameNode, "state", {"FSState": "Operational", "NumLiveDataNodes": 1})
    assert said(name_node, "zookeeper")
    assert not said(name_node, "NONE")
    waits = hadoop(tmp_path, {**name_node.properties, "dfs.client.retry.policy.enabled": "true"})
    assert not said(waits, "zookeeper")


def test_nobody_listens(tmp_path: Path) -> None:
    dead = hadoop(
        tmp_path, {"fs.defaultFS": "hdfs://127.0.0.1:1", "yarn.resourcemanager.address": "127.0.0.1:1"}
    )
    shown: list[str] = []
    config = Settings(
        {
            "yarn.environment": "none",
            "env.hadoop.conf.dir": str(dead.folder),
            "env.yarn.conf.dir": str(tmp_path),
        }
    )
    assert doctor(config, shown.append) == 1
    failures = [line for line in shown if line.startswith("FAIL")]
    assert any(
        "HDFS's NameNode does not answer; tried 127.0.0.1:1" in line and "fs.defaultFS" in line
        for line in failures
    )
    assert any(
        "ResourceManager does not answer" in line and "yarn.resourcemanager.address" in line
        for line in failures
    )


def test_a_secured_cluster_asks_for_a_ticket_and_tells_how_long_tokens_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = hadoop(
        tmp_path,
        {
            "hadoop.security.authentication": "kerberos",
            "dfs.namenode.delegation.token.max-lifetime": str(86_400_000),
        },
    )
    program(tmp_path / "bin", "klist", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    findings = list(doctor_hadoop.kerberos(Settings(), secured))
    assert "there is no valid ticket: run kinit" in only(iter(findings), Level.FAIL).text
    assert "end 1.0 days after it was submitted" in only(iter(findings), Level.WARN).text
    missing = Settings(
        {"security.kerberos.login.keytab": "/nowhere.keytab", "security.kerberos.login.principal": "me"}
    )
    assert "no such file" in only(doctor_hadoop.kerberos(missing, secured), Level.FAIL).text
