"""The process of a SparkDriver: however it ends, nothing of it is left, and its master hears why."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from tests.support.batch_runner import collecting_graph
from tests.support.process_names import command_of, name_of
from tests.support.spark_driver import LIMIT, DriverUnderTest, spark_driver
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.spark.java.class_archive import ClassArchive
from yarrow.container.batch.spark.requirements import find_java
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.graph.job_graph import JobGraph

pytestmark = pytest.mark.spark


def waiting_graph(marker: Path) -> JobGraph:
    """A job whose tasks tell that they run, and then wait for ever."""
    name = str(marker)

    def wait(value: int) -> int:
        Path(name).touch()
        threading.Event().wait()
        return value

    env = environment(2)
    return collecting_graph(env, env.from_collection([1, 2, 3, 4]).rebalance().map(wait))


def running(driver: DriverUnderTest, folder: Path) -> tuple[Any, list[psutil.Process]]:
    """A run whose tasks wait: its end, and all processes of the driver."""
    _, ended = driver.submit(waiting_graph(folder / "marker"))
    until((folder / "marker").exists)
    processes = driver.processes()
    assert {"java", "yarrow-batchd", "yarrow-batch"} <= {name_of(process) for process in processes}
    return ended, processes


def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(LIMIT * 20)):
        if condition():
            return
        threading.Event().wait(0.05)
    raise AssertionError("what the test waits for does not come")


def left_of(processes: list[psutil.Process]) -> list[str]:
    """The names of those that have not ended in time."""
    with contextlib.suppress(AssertionError):
        until(lambda: not any(map(_lives, processes)))
    return [name_of(process) for process in processes if _lives(process)]


def _lives(process: psutil.Process) -> bool:
    """Whether it runs: whoever adopts an ended one may leave it as a zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_killed_java_fails_the_run_and_ends_the_driver(tmp_path: Path) -> None:
    with spark_driver(tmp_path) as driver:
        ended, processes = running(driver, tmp_path)
        driver.java().kill()
        cause = ended.result(LIMIT).failure
        assert cause is not None
        assert cause.exception_name.endswith("SparkLostError")
        assert (
            cause.message == "Java, which runs Spark, has ended by signal 9: see the log of the SparkDriver"
        )
        assert driver.master.disconnected.result(LIMIT).message == cause.message
        assert driver.process.wait(LIMIT) == 1
        assert left_of(processes) == []
        assert os.listdir(tmp_path / "work") == []


def test_java_that_stands_still_is_lost(tmp_path: Path) -> None:
    with spark_driver(tmp_path, configuration={"heartbeat.timeout": "30 s"}) as driver:
        ended, processes = running(driver, tmp_path)
        driver.java().suspend()
        cause = ended.result(LIMIT).failure
        assert cause is not None and not cause.is_final, "the restart strategy decides"
        assert cause.exception_name.endswith("SparkLostError")
        assert "Java, which runs Spark, has not answered for 30 s (heartbeat.timeout)" in cause.message
        assert driver.master.disconnected.result(LIMIT).message == cause.message
        assert driver.process.wait(LIMIT) == 1
        assert left_of(processes) == []
        assert os.listdir(tmp_path / "work") == []


def test_a_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    with spark_driver(tmp_path) as driver:
        _, processes = running(driver, tmp_path)
        driver.process.send_signal(signal.SIGKILL)
        driver.process.wait(LIMIT)
        assert left_of(processes) == []


def test_the_end_of_its_parent_is_the_end_of_the_driver(tmp_path: Path) -> None:
    with spark_driver(tmp_path) as driver:
        _, processes = running(driver, tmp_path)
        assert driver.process.stdin is not None
        driver.process.stdin.close()
        assert left_of(processes) == []
        assert os.listdir(tmp_path / "work") == []


def test_a_released_driver_ends_while_spark_starts(tmp_path: Path) -> None:
    with spark_driver(tmp_path) as driver:
        until(lambda: driver.master.registration is not None)
        processes = driver.processes()
        driver.release()
        assert driver.process.wait(LIMIT) == 0
        assert left_of(processes) == []
        assert os.listdir(tmp_path / "work") == []


def test_without_java_the_master_hears_what_to_do(tmp_path: Path) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    with spark_driver(tmp_path, environment={**variables, "PATH": str(tmp_path)}) as driver:
        cause = driver.master.disconnected.result(LIMIT)
        assert cause.is_final
        assert cause.exception_name.endswith("SparkRequirementError")
        assert "there is no java on PATH and JAVA_HOME is not set: install Java 17" in cause.message
        assert cause.stacktrace.count("\n") == 1
        assert driver.process.wait(LIMIT) == 1


@pytest.mark.parametrize(
    ("is_there", "option"), [(False, "-XX:ArchiveClassesAtExit"), (True, "-XX:SharedArchiveFile")]
)
def test_java_writes_an_archive_of_its_classes_or_uses_the_one_that_is_there(
    tmp_path: Path, is_there: bool, option: str
) -> None:
    classes, jars = tmp_path / "classes", Path(pyspark.__file__).parent / "jars"
    archive = ClassArchive(classes, find_java().executable, jars, tmp_path, SystemClock())
    if is_there:
        # Java does without a file that is no archive.
        archive._file.touch()
    # A folder of its own: drivers of a busy machine give up an archive that takes them too long.
    with spark_driver(tmp_path, environment={**os.environ, "YARROW_SPARK_CLASSES": str(classes)}) as driver:
        # A process that is just being executed has its new name already, and no arguments yet.
        until(lambda: any(f" {option}=" in command_of(process) for process in driver.processes()))


def test_java_takes_the_archive_also_with_a_folder_of_hadoops_configuration(
    tmp_path: Path, written_classes: None
) -> None:
    for name in ("core-site.xml", "yarn-site.xml"):
        (tmp_path / name).write_text("<configuration/>")
    # With -Xshare:on Java ends if it cannot take the archive.
    options = {"spark.driver.extraJavaOptions": "-Xshare:on"}
    variables = {**os.environ, "HADOOP_CONF_DIR": str(tmp_path)}
    with spark_driver(tmp_path, environment=variables, configuration=options) as driver:
        driver.application()
        (java,) = [process for process in driver.processes() if name_of(process) == "java"]
        command = command_of(java)
        assert f"/*:{tmp_path}" in command and " -XX:SharedArchiveFile=" in command


def test_a_setting_that_only_the_engine_makes_is_refused(tmp_path: Path) -> None:
    with spark_driver(tmp_path, configuration={"spark.authenticate": "false"}) as driver:
        cause = driver.master.disconnected.result(LIMIT)
        assert cause.is_final
        assert "spark.authenticate" in cause.message


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("spark.memory.fraction", "abc", 'For input string: "abc"'),
        # Spark reads this one when it makes the session.
        ("spark.sql.session.timeZone", "Nowhere/X", "Cannot resolve the given timezone"),
        (
            "spark.driver.extraJavaOptions",
            "-XX:NoSuchFlag=1 -XX:-IgnoreUnrecognizedVMOptions",
            "Unrecognized VM option 'NoSuchFlag=1'",
        ),
    ],
)
def test_a_setting_that_spark_or_java_refuses_is_final_and_named(
    tmp_path: Path, key: str, value: str, said: str
) -> None:
    with spark_driver(tmp_path, configuration={key: value}) as driver:
        cause = driver.master.disconnected.result(LIMIT)
        assert cause.is_final
        assert cause.exception_name.endswith("SparkSettingError")
        assert f" refuses the setting {key}={value}: " in cause.message
        assert said in cause.message
        assert cause.message.endswith(". Correct it or leave it out, and run the job again")
        assert "org.apache" not in cause.stacktrace and "py4j" not in cause.stacktrace
        assert driver.process.wait(LIMIT) == 1


def test_a_setting_that_spark_refuses_when_it_runs_is_final_and_named(tmp_path: Path) -> None:
    with spark_driver(tmp_path, configuration={"spark.io.compression.codec": "nope"}) as driver:
        env = environment(2)
        numbers = env.from_collection([1, 2, 3]).key_by(lambda n: n)
        cause = driver.run(collecting_graph(env, numbers.reduce(lambda a, b: a + b))).failure
        assert cause is not None and cause.is_final
        assert "Spark refuses the setting spark.io.compression.codec=nope: " in cause.message


def test_java_that_cannot_start_is_told_with_its_own_words(tmp_path: Path) -> None:
    # Java knows the option, so the reason may pass.
    options = {"spark.driver.extraJavaOptions": "-XX:MaxMetaspaceSize=1k"}
    with spark_driver(tmp_path, configuration=options) as driver:
        cause = driver.master.disconnected.result(LIMIT)
        assert cause.exception_name.endswith("SparkStartError")
        assert not cause.is_final
        assert "OutOfMemoryError: Metaspace" in cause.message
        assert driver.process.wait(LIMIT) == 1
