"""`yarrow doctor` on a real cluster: all is well, and what it says of settings that would fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import user
from tests.support.hadoop.web import make_folder
from tests.yarn.commands import Commands, commands_in


@pytest.fixture
def commands(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    with commands_in(hadoop, tmp_path, {"yarn.environment": "auto"}) as made:
        yield made


def failures(output: str) -> list[str]:
    return [line.removeprefix("FAIL  ") for line in output.splitlines() if line.startswith("FAIL")]


def test_a_cluster_that_is_well(commands: Commands, hadoop: HadoopCluster) -> None:
    output = commands.ok("doctor").out
    assert failures(output) == []
    for beginning in (
        "python: Python 3.",
        "java: Java ",
        "yarn: ",
        "settings: ",
        "hadoop: ",
        "hdfs: ",
        "clock: ",
        "queue: ",
    ):
        assert f"OK    {beginning}" in output or f"WARN  {beginning}" in output, output
    assert f"{hadoop.hdfs_url}/user/" in output
    assert "2 of 2 nodes run" in output


@pytest.mark.parametrize(
    "wrong",
    [
        # Where the queue is wrong, neither sizes nor labels can be held against it.
        {"taskmanager.memory.process.size=60g": "taskmanager.memory.process.size"},
        {"jobmanager.memory.process.size=60g": "jobmanager.memory.process.size"},
        {"yarn.application.node-label=gpu": "no running node has the label gpu"},
        {
            "yarn.application.queue=nowhere": "YARN has no queue 'nowhere'",
            "yarn.staging-directory=file:///staging": (
                "yarn.staging-directory is 'file:///staging', which nodes cannot read"
            ),
        },
    ],
    ids=["large-task-executor", "large-master", "label", "places"],
)
def test_wrong_settings_are_said(commands: Commands, wrong: dict[str, str]) -> None:
    outcome = commands("doctor", *(f"-D{setting}" for setting in wrong))
    assert outcome.status == 1
    for text in wrong.values():
        assert any(text in line for line in failures(outcome.out)), (text, outcome.out)


def test_a_folder_without_configuration(commands: Commands) -> None:
    outcome = commands("doctor", "-D", "env.yarn.conf.dir=/nowhere")
    assert outcome.status == 1
    wanted = "env.yarn.conf.dir is /nowhere, but there is no yarn-site.xml"
    assert any(wanted in line for line in failures(outcome.out)), outcome.out


def test_a_staging_directory_of_another_user(
    commands: Commands, hadoop: HadoopCluster, hdfs_folder: str
) -> None:
    make_folder(hadoop.ports["namenode.web"], hdfs_folder.removeprefix(hadoop.hdfs_url), "700", user())
    commands.environment["HADOOP_USER_NAME"] = "nobody-else"
    outcome = commands("doctor", "-D", f"yarn.staging-directory={hdfs_folder}")
    assert outcome.status == 1
    assert any(
        "cannot be written" in line and "yarn.staging-directory" in line for line in failures(outcome.out)
    ), outcome
