"""What a driver says of its Spark application on YARN, by the reports of Java's YARN client."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from yarrow.container.batch.spark import yarn_application
from yarrow.container.batch.spark.yarn_application import YarnApplication
from yarrow.container.batch.spark.yarn_settings import SparkOnYarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ContainerShape

SPARK = SparkOnYarn(
    hadoop=Path("/etc/hadoop"),
    staging="hdfs://n:1/staging",
    tags=("yarrow-spark", "yarrow-driver-1"),
    resource_managers=(),
    interpreter="/opt/python",
    jars=Path("/jars"),
)


class Java:
    """The part of Java that is asked, with one application or none."""

    def __init__(self, state: str = "", said: str = "", containers: int = 0) -> None:
        self.client = MagicMock()
        self.request = MagicMock()
        reports: list[Any] = []
        if state:
            report = MagicMock()
            report.getYarnApplicationState.return_value = state
            report.getDiagnostics.return_value = said
            report.getApplicationId.return_value = "application_1_5"
            report.getApplicationResourceUsageReport().getNumUsedContainers.return_value = containers
            reports.append(report)
        self.client.getApplications.return_value = reports
        self.jvm = MagicMock()
        hadoop = self.jvm.org.apache.hadoop.yarn
        hadoop.client.api.YarnClient.createYarnClient.return_value = self.client
        hadoop.api.protocolrecords.GetApplicationsRequest.newInstance.return_value = self.request
        self.jvm.java.util.HashSet.side_effect = set
        configuration = Settings({"spark.executor.memory": "512m", "spark.executor.cores": "1"})
        self.application = YarnApplication(self.jvm, configuration, SPARK)


def context(executors: int, *, ended: int = 0, stopped: bool = False) -> Any:
    # Spark counts the driver too.
    names = ["driver", *map(str, range(executors + ended))]

    def listed(active_only: bool) -> Any:
        found = names[:-ended] if active_only and ended else names
        return SimpleNamespace(
            size=lambda: len(found), apply=lambda place: SimpleNamespace(id=lambda: found[place])
        )

    java = SimpleNamespace(
        isStopped=lambda: stopped, statusStore=lambda: SimpleNamespace(executorList=listed)
    )
    return SimpleNamespace(applicationId="application_1_5", _jsc=SimpleNamespace(sc=lambda: java))


@pytest.fixture(autouse=True)
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(shape: ContainerShape, number: int) -> str:
        return f"no node has {shape.memory_mb} MB"

    monkeypatch.setattr(yarn_application, "ContainerExplainer", lambda *_: explain)


def test_an_application_that_waits_for_its_first_container_says_so_in_yarns_words() -> None:
    java = Java("ACCEPTED", "Queue's AM resource limit exceeded.\n")
    assert java.application.waits_for() == (
        "YARN has not started Spark's application application_1_5 yet; Queue's AM resource limit exceeded."
    )
    (tags,) = java.request.setApplicationTags.call_args.args
    assert tags == {"yarrow-driver-1"}


def test_a_master_that_has_its_container_and_starts_waits_for_no_room() -> None:
    java = Java(
        "ACCEPTED", "AM container is launched, waiting for AM container to Register with RM", containers=1
    )
    assert java.application.waits_for() == ""


def test_executors_without_room_are_named_by_their_size() -> None:
    text = Java("RUNNING", containers=1).application.waits_for()
    assert "no executor of 1408 MB and 1 cores yet; no node has 1408 MB" in text


def test_nothing_is_waited_for_once_an_executor_has_a_container_or_has_come() -> None:
    assert Java("RUNNING", containers=2).application.waits_for() == ""
    assert Java().application.waits_for() == ""
    java = Java("RUNNING", containers=1)
    java.application.await_executors(context(1), threading.Event())
    assert java.application.waits_for() == ""


def test_an_executor_that_has_come_and_gone_is_not_waited_for() -> None:
    """Dynamic allocation ends those that are idle, perhaps before anybody looks, and asks for others with a task."""
    java = Java("RUNNING", containers=1)
    java.application.await_executors(context(0, ended=1), threading.Event())
    assert java.application.waits_for() == ""


def test_the_wait_for_executors_ends_with_the_driver() -> None:
    closing = threading.Event()
    closing.set()
    Java("RUNNING", containers=1).application.await_executors(context(0), closing)


def test_an_end_under_the_driver_is_told_with_yarns_reason() -> None:
    java = Java("KILLED", "Application was killed by user joe")
    assert java.application.end_of(context(1)) == ""
    assert java.application.end_of(context(0, stopped=True)) == (
        "Spark's application application_1_5 on YARN has ended under its driver: KILLED."
        " Application was killed by user joe"
    )


@pytest.mark.parametrize(("state", "killed"), [("ACCEPTED", 1), ("RUNNING", 1), ("FINISHED", 0), ("", 0)])
def test_what_lives_is_killed(state: str, killed: int) -> None:
    java = Java(state)
    java.application.kill()
    assert java.client.killApplication.call_count == killed
