"""Attempts of an application on a real YARN: what ends it ends it once, in whichever attempt that comes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, commands_in
from tests.yarn.highly_available import high_availability, zookeeper_client
from tests.yarn.waiting import GRACE, until

ROOT = f"/yarrow-attempts-{os.getpid()}"
LOG_BYTES = 50_000


@pytest.fixture
def yarrow(hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path) -> Iterator[Commands]:
    configuration = {
        "execution.checkpointing.dir": f"{hdfs_folder}/checkpoints",
        "yarn.application-attempts": "3",
        **high_availability(hadoop.zookeeper_quorum, ROOT, f"{hdfs_folder}/ha"),
    }
    try:
        with commands_in(hadoop, tmp_path, configuration) as commands:
            yield commands
    finally:
        with zookeeper_client(hadoop.zookeeper_quorum) as client:
            if client.exists(ROOT):
                client.delete(ROOT, recursive=True)


def test_a_failed_job_of_its_own_runs_once_however_many_attempts_there_are(
    yarrow: Commands, hadoop: HadoopCluster
) -> None:
    """Skein reports FAILED from the last attempt alone: those before it find the end recorded, and tell the same."""
    outcome = yarrow("run", "-t", "yarn-per-job", "-ynm", yarrow.name("broken"), "broken.py")
    assert outcome.status == 1 and "ZeroDivisionError" in outcome.err, outcome
    assert yarrow.final_status(outcome.application) == "FAILED"
    assert "ZeroDivisionError" in str(hadoop.application(outcome.application)["diagnostics"])
    logs = hadoop.container_logs(outcome.application, LOG_BYTES).values()
    assert sum(text.count("asked YARN for a container") for text in logs) == 1
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        until(lambda: not client.exists(f"{ROOT}/{outcome.application}"), GRACE, "nothing is stored")


def test_so_it_does_without_high_availability(yarrow: Commands, hadoop: HadoopCluster) -> None:
    """Then the end lies in the application's own folder on HDFS, which Skein removes with it."""
    alone = ("-ynm", yarrow.name("alone"), "-Dhigh-availability.type=NONE")
    outcome = yarrow("run", "-t", "yarn-per-job", *alone, "broken.py")
    assert outcome.status == 1 and "ZeroDivisionError" in outcome.err, outcome
    assert yarrow.final_status(outcome.application) == "FAILED"
    assert "ZeroDivisionError" in str(hadoop.application(outcome.application)["diagnostics"])
    assert len(hadoop.attempts(outcome.application)) == 3
    logs = hadoop.container_logs(outcome.application, LOG_BYTES).values()
    assert sum(text.count("asked YARN for a container") for text in logs) == 1


def test_a_client_that_asks_for_the_end_of_an_application_gets_it_whatever_its_mode(
    yarrow: Commands, hadoop: HadoopCluster
) -> None:
    alone = ("-ynm", yarrow.name("stopped"), "-Dhigh-availability.type=NONE", "-Dyarn.application-attempts=1")
    endless = yarrow.ok("run", "-d", "-t", "yarn-per-job", *alone, "endless.py").application
    ended = yarrow.ok("session", "-id", endless, text="stop\n")
    assert "it: YARN kills it" not in ended.err
    assert yarrow.final_status(endless) == "KILLED"
    assert "stopped by a client" in str(hadoop.application(endless)["diagnostics"])
