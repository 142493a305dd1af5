"""Why containers of Spark's application were lost: YARN's words, and the log of Spark's driver."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from yarrow.container.batch.spark.lost_containers import last_lost_executor, yarns_reason
from yarrow.container.batch.spark.requirements import JavaInstallation
from yarrow.container.batch.spark.session import SparkHost
from yarrow.container.batch.spark.settings import SparkFolders
from yarrow.runtime.config.settings import Settings

#: As Spark writes it, with the layout of the engine.
LOST = (
    "2026-11-30 23:56:{second},090 WARN  org.apache.spark.scheduler.cluster.YarnSchedulerBackend$YarnSchedulerEndpoint"
    " - Requesting driver to remove executor {executor} for reason Container from a bad node: container_17_33_01_000006"
    " on host: node-7.example. Exit status: -1. Possible causes: Unknown executor exit code (-1)"
    " Diagnostics: [2026-11-30 23:56:53.255]{reason}\n[2026-11-30 23:56:53.255]{reason}\n.\n"
)
FULL = "java.io.IOException: No space left on device"


def test_the_last_lost_executor_is_told_with_yarns_reason_and_the_remedy(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    other = "2026-11-30 23:56:59,000 WARN  org.apache.spark.SparkConf - something else\n"
    log.write_text(
        LOST.format(second=49, executor=4, reason="other")
        + LOST.format(second=56, executor=5, reason=FULL)
        + other
    )
    assert last_lost_executor(log) == (
        "Executor 5 was lost last: Container from a bad node: container_17_33_01_000006 on host: node-7.example."
        " Exit status: -1. Possible causes: Unknown executor exit code (-1) Diagnostics: java.io.IOException: No space"
        " left on device: free that disk, or let YARN's NodeManagers write to a larger one"
        " (yarn.nodemanager.local-dirs)"
    )


def test_other_reasons_have_no_remedy(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(LOST.format(second=49, executor=4, reason="Container killed by the Node Manager"))
    assert last_lost_executor(log).endswith("Diagnostics: Container killed by the Node Manager")


def test_a_log_without_lost_executors_or_none_tells_nothing(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    assert last_lost_executor(log) == ""
    log.write_text("2026-11-30 23:56:59,000 WARN  org.apache.spark.SparkConf - something else\n")
    assert last_lost_executor(log) == ""


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text(LOST.format(second=49, executor=4, reason=FULL) + "x" * (64 << 10))
    assert last_lost_executor(log) == ""
    log.write_text("x" * (1 << 20) + "\n" + LOST.format(second=49, executor=4, reason="y" * 10_000))
    assert "characters left out" in last_lost_executor(log)


def test_a_container_that_did_not_start_is_told_in_one_line_with_the_remedy() -> None:
    said = (
        "Application application_17_0037 failed 1 times due to AM Container for appattempt_17_0037_000001 exited with "
        f" exitCode: -1\nFailing this attempt.Diagnostics: [2026-12-01 00:05:36.739]{FULL}\n"
        f"[2026-12-01 00:05:36.739]{FULL}\n"
        "For more detailed output, check the application tracking page: http://yarn:8088/cluster\n"
        ". Failing the application."
    )
    assert yarns_reason(said.splitlines()) == (
        "Application application_17_0037 failed 1 times due to AM Container for appattempt_17_0037_000001 exited with "
        f" exitCode: -1 Failing this attempt.Diagnostics: {FULL} Failing the application: free that disk, or let YARN's"
        " NodeManagers write to a larger one (yarn.nodemanager.local-dirs)"
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("FINISHED. Max number of executor failures (4) reached", True),
        ("KILLED. Application was killed by user joe", False),
        ("", False),
    ],
)
def test_an_application_that_gives_up_for_lost_executors_tells_the_last_one(
    tmp_path: Path, said: str, told: bool
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(LOST.format(second=56, executor=5, reason=FULL))
    host = SparkHost(cast(JavaInstallation, None), Settings({}), 1, SparkFolders(tmp_path), log)
    host._application = cast(Any, SimpleNamespace(end_of=lambda context: said))
    host._session = cast(Any, SimpleNamespace(sparkContext=None))
    expected = f"{said}. {last_lost_executor(log)}" if told else said
    assert host.lost_application() == expected
    assert ("No space left on device" in expected) == told
