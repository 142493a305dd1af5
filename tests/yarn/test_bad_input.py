"""What cannot be: one sentence that names the setting and what was tried, exit status 1, nothing on YARN or HDFS."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.free_ports import free_port
from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, Outcome

START = ("session", "-d", "-nm", "bad-input")
JOB = ("run", "-m", "yarn-cluster", "-ynm", "bad-input")


@pytest.fixture
def yarrow(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    commands = Commands(hadoop, tmp_path)
    before = {entry["id"] for entry in hadoop.applications()}
    yield commands
    # What is refused leaves nothing: neither on YARN (but what it had refused) nor in the user's files.
    bad = [entry for entry in hadoop.applications() if entry["name"] == "bad-input"]
    running = [
        entry for entry in bad if entry["id"] not in before and entry["state"] not in ("FAILED", "KILLED")
    ]
    assert not running
    assert commands.files == []
    commands.assert_nothing_left()


def refused(outcome: Outcome, *said: str) -> None:
    """One sentence (or a few), with all of `said` in it."""
    assert outcome.status == 1, outcome
    assert " The program finished with the following exception:" in outcome.err
    for text in said:
        assert text in outcome.err, f"{text!r} is not said:\n{outcome.err}"
    assert "Traceback" not in outcome.err
    assert "at org.apache." not in outcome.err
    assert "sum" not in outcome.out


def conf_with(hadoop: HadoopCluster, folder: Path, **properties: str) -> str:
    """A copy of the cluster's configuration with other values."""
    folder.mkdir()
    for source in Path(hadoop.conf_dir).glob("*.xml"):
        tree = ElementTree.parse(source)
        for entry in tree.getroot().iter("property"):
            name = entry.findtext("name", "")
            value = entry.find("value")
            if value is not None and name in properties:
                value.text = properties[name]
        tree.write(folder / source.name)
    return str(folder)


def test_a_resource_manager_that_is_down_is_named(yarrow: Commands, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    other = {"yarn.resourcemanager.address": nobody, "yarn.resourcemanager.webapp.address": nobody}
    conf = conf_with(yarrow.hadoop, tmp_path / "hadoop", **other)
    for arguments in (START, (*JOB, "doubles.py"), ("run-application", "doubles.py")):
        refused(yarrow(*arguments, HADOOP_CONF_DIR=conf, YARN_CONF_DIR=conf), "ResourceManager", nobody, conf)


def test_a_name_node_that_is_down_is_named(yarrow: Commands, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    conf = conf_with(yarrow.hadoop, tmp_path / "hadoop", **{"fs.defaultFS": f"hdfs://{nobody}"})
    refused(yarrow(*START, HADOOP_CONF_DIR=conf, YARN_CONF_DIR=conf), "NameNode", nobody, "fs.defaultFS")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((*START, "-qu", "nowhere"), ("yarn.application.queue", "nowhere", "default")),
        ((*JOB, "-yqu", "nowhere", "doubles.py"), ("yarn.application.queue", "nowhere")),
        ((*START, "-jm", "900000"), ("jobmanager.memory.process.size", "900000 MiB")),
        ((*START, "-tm", "900000"), ("taskmanager.memory.process.size",)),
        ((*START, "-s", "99", "-tm", "6000"), ("taskmanager.numberOfTaskSlots",)),
        ((*START, "-jm", "1"), ("jobmanager.memory.process.size",)),
        ((*START, "-nl", "gpu"), ("yarn.application.node-label", "gpu")),
        ((*START, "-Dyarn.taskmanager.node-label=gpu"), ("yarn.taskmanager.node-label", "gpu")),
        ((*JOB, "-s", "/tmp/savepoint-1", "doubles.py"), ("execution.state-recovery.path", "hdfs://")),
    ],
)
def test_what_yarn_would_never_grant_is_refused(
    yarrow: Commands, arguments: tuple[str, ...], said: tuple[str, ...]
) -> None:
    refused(yarrow(*arguments), *said)


@pytest.mark.parametrize(
    "arguments",
    [
        ("session", "-id"),
        ("list", "-yid"),
        ("token",),
        ("proxy",),
        ("run", "-d", "doubles.py", "-yid"),
        ("cancel", "0" * 32, "-yid"),
        ("stop", "0" * 32, "-yid"),
        ("savepoint", "0" * 32, "-yid"),
    ],
)
def test_an_unknown_application_is_named(yarrow: Commands, arguments: tuple[str, ...]) -> None:
    unknown = "application_1000000000000_0001"
    named = [*arguments, unknown]
    if arguments[-1] == "-yid" and len(arguments) > 2:
        # What it is to be done to comes last.
        named = [arguments[0], "-yid", unknown, arguments[-2]]
    refused(yarrow(*named), unknown, f"{yarrow.folder}/files")


def test_a_folder_on_hdfs_that_may_not_be_written_is_named(yarrow: Commands, hdfs_folder: str) -> None:
    # Simple authentication: HDFS believes the name that a client gives.
    outcome = yarrow(*START, HADOOP_USER_NAME="stranger")
    refused(outcome, "Permission denied", "stranger", "home directory")


def test_hdfs_without_room_is_named(yarrow: Commands) -> None:
    home = "/user/poor"
    yarrow.hadoop.run("hdfs", "dfs", "-mkdir", "-p", home)
    try:
        yarrow.hadoop.run("hdfs", "dfs", "-chown", "poor", home)
        yarrow.hadoop.run("hdfs", "dfsadmin", "-setSpaceQuota", "1", home)
        refused(yarrow(*START, HADOOP_USER_NAME="poor"), "HDFS has no room", "quota")
        left = yarrow.hadoop.run("hdfs", "dfs", "-ls", "-R", home).stdout
        assert "application_" not in left
    finally:
        yarrow.hadoop.run("hdfs", "dfs", "-rm", "-r", "-f", "-skipTrash", home)
