"""The files that a cluster for tests is configured by, and its launchers, without starting it."""

from __future__ import annotations

import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hadoop import configuration, launchers
from tests.support.hadoop.layout import DAEMONS, NODE_ADDRESSES, Layout
from tests.support.hadoop.port_names import NAMES
from tests.support.services import ports
from yarrow.runtime.fs.hdfs_settings import hadoop_configuration, http_addresses

PORTS = {name: 20_000 + number for number, name in enumerate(NAMES)}


def properties(path: Path) -> dict[str, str]:
    entries = ElementTree.parse(path).getroot().iter("property")
    return {entry.findtext("name", ""): entry.findtext("value", "") for entry in entries}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A cluster's folder with its configuration."""
    made = Layout(tmp_path / "a & b")
    configuration.write(made, PORTS, Path("/jars"))
    return made


def test_clients_find_hdfs_by_the_configuration(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(layout.conf))
    found = hadoop_configuration()
    assert found["fs.defaultFS"] == f"hdfs://127.0.0.1:{PORTS['namenode.rpc']}"
    assert http_addresses("hdfs:///x", found) == [f"http://127.0.0.1:{PORTS['namenode.web']}"]


def test_names_of_folders_survive_xml(layout: Layout) -> None:
    found = properties(layout.conf / "hdfs-site.xml")
    assert found["dfs.namenode.name.dir"] == f"file://{layout.root}/data/namenode"


def test_node_managers_share_nothing_but_the_cluster(layout: Layout) -> None:
    first, second = (properties(layout.conf_of(name) / "yarn-site.xml") for name in NODE_ADDRESSES)
    own = {
        "local-dirs",
        "log-dirs",
        "hostname",
        "bind-host",
        "address",
        "localizer.address",
        "webapp.address",
    }
    assert {key for key in first if first[key] != second[key]} == {f"yarn.nodemanager.{name}" for name in own}


def test_node_managers_alone_wait_for_a_name_node_that_restarts(layout: Layout) -> None:
    key = "dfs.client.retry.policy.enabled"
    assert key not in properties(layout.conf / "hdfs-site.xml")
    for name in NODE_ADDRESSES:
        assert properties(layout.conf_of(name) / "hdfs-site.xml")[key] == "true"


def test_every_port_is_used_once(layout: Layout) -> None:
    files = [*layout.root.rglob("*-site.xml"), layout.conf / "zoo.cfg"]
    text = {file: file.read_text() for file in files}
    for name, port in PORTS.items():
        assert any(str(port) in content for content in text.values()), name
    assert len(set(PORTS.values())) == len(NAMES)


def test_queues_take_the_whole_cluster_and_the_small_one_cannot_grow() -> None:
    found = configuration.capacity_scheduler()
    prefix = "yarn.scheduler.capacity.root"
    assert sum(int(found[f"{prefix}.{queue}.capacity"]) for queue in configuration.QUEUES) == 100
    assert found[f"{prefix}.small.maximum-capacity"] == found[f"{prefix}.small.capacity"]
    assert found[f"{prefix}.default.maximum-capacity"] == "100"


def test_containers_are_held_to_their_memory(layout: Layout) -> None:
    found = properties(layout.conf_of("nodemanager1") / "yarn-site.xml")
    assert found["yarn.nodemanager.pmem-check-enabled"] == "true"
    assert found["yarn.nodemanager.resource.memory.enforced"] == "false"
    assert int(found["yarn.nm.liveness-monitor.expiry-interval-ms"]) <= 10_000
    assert found["yarn.resourcemanager.recovery.enabled"] == "true"


def test_every_daemon_has_ports() -> None:
    assert all(ports.of_daemon(PORTS, daemon.name) for daemon in DAEMONS)


def test_chosen_ports_are_free_distinct_and_below_outgoing_ones() -> None:
    chosen = ports.choose("some folder", NAMES)
    assert chosen.keys() == set(NAMES)
    assert len(set(chosen.values())) == len(chosen)
    assert max(chosen.values()) < 32_768
    # They are given, though nobody listens yet.
    assert not set(ports.choose("some folder", NAMES).values()) & set(chosen.values())


def test_ports_in_use_are_passed_over() -> None:
    first = ports.choose("another folder", NAMES)["zookeeper.client"]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        assert first not in ports.choose("another folder", NAMES).values()


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=30))
def test_xml_keeps_any_value(value: str) -> None:
    root = ElementTree.fromstring(configuration.xml({"key": value}))
    assert root.findtext("property/value", "") == value


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Launchers on a folder with two jars and a Java that says what it was called with."""
    java, jars = tmp_path / "java home" / "bin" / "java", tmp_path / "ja rs"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    java.chmod(0o755)
    jars.mkdir()
    for name in ("a.jar", "b.jar"):
        (jars / name).touch()
    launchers.write(tmp_path / "bin", java.parents[1], tmp_path / "conf", jars)
    return tmp_path / "bin"


def launch(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(folder / words[0]), *words[1:]]
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)


def test_classpath_is_the_configuration_and_every_jar(bin_folder: Path) -> None:
    base = bin_folder.parent
    listed = launch(bin_folder, "yarn", "classpath", "--glob").stdout.strip()
    assert listed == f"{base}/conf:{base}/ja rs/a.jar:{base}/ja rs/b.jar"
    assert launch(bin_folder, "yarn", "classpath").stdout.strip() == f"{base}/conf:{base}/ja rs/*"


def test_commands_run_their_mains_with_all_arguments(bin_folder: Path) -> None:
    said = launch(bin_folder, "yarn", "application", "-kill", "an id").stdout.splitlines()
    assert said[-4:] == ["org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", "-kill", "an id"]
    said = launch(bin_folder, "hdfs", "dfs", "-ls", "/").stdout.splitlines()
    assert said[-3:] == ["org.apache.hadoop.fs.FsShell", "-ls", "/"]


def test_unknown_command_names_the_known_ones(bin_folder: Path) -> None:
    done = launch(bin_folder, "yarn", "jar")
    assert done.returncode == 1
    assert "application" in done.stderr and "logs" in done.stderr
