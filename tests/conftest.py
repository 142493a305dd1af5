"""What holds for every test: debug assertions on, reproducible properties, nothing left behind.

Fixtures of one part belong into the conftest of that part's folder, not here.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import shutil
import signal
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

from tests.support.cpu_seconds import CPU_SECONDS, cpu_seconds
from tests.support.longest_first import put_longest_first

os.environ.setdefault("YARROW_DEBUG", "1")

# What a shell starts in the background ignores Ctrl-C, and so would every command that is tested with it.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Shared machines are noisy: a deadline per example would measure the neighbours. Each run draws other examples: a few
# that are long or refused, one after the other, say nothing about a property.
LUCK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("yarrow", deadline=None, suppress_health_check=LUCK)
settings.load_profile("yarrow")

#: Marks of tests that come by file: scripts/test runs them together.
BY_FILE = ("cluster", "fault", "spark", "kafka")
#: The configuration of commands that such tests run: they must not take a developer's own cluster for theirs.
CONFIGURATION_OF_COMMANDS = Path(__file__).parent / "support" / "conf"
#: Seconds of files with few tests, or with tests that take long, when clusters are shared by file.
LONG_FILES = {
    "tests/fault/test_fault_plans.py": 200.0,
    "tests/cluster/checkpoints/test_unaligned_checkpoints.py": 50.0,
    "tests/cluster/control/test_running_master.py": 50.0,
    "tests/cluster/embedded/test_secured_cluster.py": 30.0,
    "tests/cluster/failover/test_collected_once.py": 20.0,
    "tests/cluster/failover/test_killed_processes.py": 40.0,
    "tests/cluster/failover/test_rescaling.py": 40.0,
    "tests/cluster/pages/test_flinks_page.py": 110.0,
    "tests/cluster/savepoints/test_state_processor_in_jobs.py": 50.0,
    "tests/fault/test_connector_kit.py": 60.0,
    "tests/fault/test_task_executors_lost.py": 40.0,
    "tests/kafka/test_kafka_batch.py": 40.0,
    "tests/kafka/test_kafka_connector.py": 110.0,
    "tests/kafka/test_kafka_security.py": 70.0,
    "tests/kafka/test_kafka_source.py": 90.0,
    "tests/kafka/test_live_etl.py": 60.0,
    "tests/kafka/test_pyflink_programs.py": 50.0,
    "tests/kafka/test_sink_exactly_once.py": 90.0,
    "tests/spark/test_both_modes.py": 60.0,
    "tests/spark/test_driver_process.py": 90.0,
    "tests/spark/test_executors.py": 150.0,
    "tests/spark/test_flights.py": 40.0,
    "tests/spark/test_flights_year.py": 100.0,
    "tests/spark/test_full_disk.py": 60.0,
    "tests/spark/test_late_attempts.py": 100.0,
    "tests/spark/test_pipeline_programs.py": 90.0,
    "tests/spark/test_programs.py": 160.0,
    # First: it has the archive of Spark's classes written, for which the other files on Spark wait.
    "tests/spark/test_savepoints.py": 210.0,
    "tests/spark/test_sql.py": 110.0,
    "tests/spark/test_standalone.py": 130.0,
    "tests/spark/test_verify.py": 80.0,
}
#: Set by scripts/test, which removes the folder: that of the archive of Spark's classes, for several runs of pytest.
SPARK_CLASSES_OF_SUITE = "YARROW_TEST_SPARK_CLASSES"
#: Seconds of any other test on a cluster.
USUAL = 1.5

#: Seconds a test's processes and threads have to end after it.
GRACE = 180.0

#: The CPU time before a test.
BEGUN = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects tests without searches for garbage, which take a quarter of the time and find next to none.

    Afterwards no search looks at the modules and tests, which stay as long as the process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests that start clusters, the files that take longest come first."""
    if all(_is_marked(item, *BY_FILE) and not _is_marked(item, "yarn") for item in items):
        put_longest_first(items, lambda nodeid: nodeid.partition("::")[0], LONG_FILES, USUAL)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGUN] = cpu_seconds()
    if _is_marked(item, *BY_FILE):
        os.environ["YARROW_CONF_DIR"] = str(CONFIGURATION_OF_COMMANDS)
    else:
        os.environ.pop("YARROW_CONF_DIR", None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Records the CPU time of a test that has been torn down, for `scripts/test --times`."""
    if call.when == "teardown":
        item.user_properties.append((CPU_SECONDS, f"{cpu_seconds() - item.stash[BEGUN]:.3f}"))


@pytest.fixture(scope="session", autouse=True)
def spark_classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of archives of Spark's classes, which belongs to this run alone and to all its processes.

    scripts/test names a folder for the parts of the whole suite, so that one driver writes the archive for all parts.
    """
    if named := os.environ.get(SPARK_CLASSES_OF_SUITE):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("YARROW_SPARK_CLASSES", named)
            yield Path(named)
        return
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "spark-classes"
    with open(f"{folder}.users", "w", encoding="utf-8") as users, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(users, fcntl.LOCK_SH)
        patch.setenv("YARROW_SPARK_CLASSES", str(folder))
        yield folder
        # 160 MB, and pytest keeps the folders of three runs. Processes that still run tests need the archive.
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test whose child processes, or threads that would keep the interpreter alive, outlive it.

    It fails also if later tests would no longer see what is logged. The root logger gets back its level: a program
    that a test runs in this process may have set it.
    """
    level = logging.root.level
    hidden = logging_hidden()
    processes_before = (
        set(psutil.Process().children(recursive=True)) if _starts_processes(request.node) else None
    )
    threads_before = set(threading.enumerate())
    yield
    logging.root.setLevel(level)
    assert logging_hidden() == hidden, "the test left logging switched off"
    for thread in set(threading.enumerate()) - threads_before:
        if not thread.daemon:
            thread.join(GRACE)
            assert not thread.is_alive(), f"the test left the thread {thread.name} running"
    if processes_before is not None:
        left = set(psutil.Process().children(recursive=True)) - processes_before
        _, alive = psutil.wait_procs(left, timeout=GRACE)
        assert not alive, f"the test left processes running: {[_describe(process) for process in alive]}"


def logging_hidden() -> tuple[int, int, list[str]]:
    """What hides lines of the engine: the level disabled for all, the engine's own level, loggers switched off."""
    manager = logging.root.manager
    loggers = [logger for logger in manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    off = [logger.name for logger in loggers if logger.disabled or not logger.propagate]
    engine = sorted(name for name in off if name.partition(".")[0] == "yarrow")
    return manager.disable, logging.getLogger("yarrow").level, engine


def _starts_processes(item: pytest.Item) -> bool:
    return _is_marked(item, "cluster", "fault")


def _is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) is not None for name in names)


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.NoSuchProcess:
        return str(process.pid)
