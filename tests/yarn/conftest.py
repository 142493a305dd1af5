"""The real Hadoop that every test of this folder runs on, brought up once for each process that runs tests.

YARROW_HADOOP_DIRECTORY names a cluster that runs already: it is used and left as it is. After each test every daemon
serves again and nothing of the test is left; when a test fails, the logs of its containers are in the report.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import user
from tests.support.hadoop.leftovers import Places
from tests.support.hadoop.web import delete_folder
from tests.support.services.serving import tail
from tests.support.spark_classes import write_classes
from tests.yarn.clusters_of_runs import SHARED, cluster_of_run
from tests.yarn.parts import Parts, sort
from tests.yarn.waiting import GRACE

#: The end of each container's log that a failed test shows.
LOG_BYTES = 12_000

#: Set by `bench/soak`: what takes longer is tested as well.
SOAK = "YARROW_SOAK"

#: What is kept on HDFS on purpose: collected logs, environments.
KEPT = ("/tmp/logs", f"/user/{user()}/.yarrow")
#: The ResourceManager keeps its state in files: all of ZooKeeper is the tests'.
PLACES = Places(znode_root="/", kept=KEPT)
#: Logs of processes that are in no container: standalone masters and TaskExecutors, in the test's own folder.
STANDALONE_LOGS = ("jobmanager-*.log", "taskmanager-*.log")

#: Skein looks at grpc's version in a way that setuptools calls deprecated.
SKEIN_COMPARES_VERSIONS = "ignore:distutils Version classes are deprecated:DeprecationWarning"

_APPLICATIONS_BEFORE = pytest.StashKey[dict[str, str]]()
_ACTIVE = ("ACCEPTED", "RUNNING")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything in this folder needs the cluster; what is marked for the soak is left to it."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.yarn)
        item.add_marker(pytest.mark.filterwarnings(SKEIN_COMPARES_VERSIONS))
    left_out = [item for item in ours if item.get_closest_marker("soak") and not os.environ.get(SOAK)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    # The tests of other folders, collected with these, keep their order.
    if len(items) == len(ours) - len(left_out):
        sort(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Parts:
    """With `-n 3` each of three processes has a cluster of its own."""
    return Parts(config, log)


@pytest.fixture(scope="session")
def hadoop() -> Iterator[HadoopCluster]:
    """The cluster of this process, serving."""
    with cluster_of_run(SHARED) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def written_classes(spark_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first process that needs it writes the archive of Spark's classes, which drivers in containers take."""
    write_classes(spark_classes, tmp_path_factory.mktemp("classes"))


@pytest.fixture(autouse=True)
def leaves_nothing_on_the_cluster(hadoop: HadoopCluster, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves applications, processes, znodes or files; brings back daemons that it ended.

    So it does on a cluster that was named, and kills nothing there: it may be another's.
    """
    before = hadoop.leftovers(PLACES)
    note_applications(hadoop, request.node)
    yield
    hadoop.bring_back()
    left = hadoop.leftovers(PLACES, before, GRACE)
    if SHARED not in os.environ:
        for application in left.applications:
            hadoop.kill_application(application)
    assert not left, f"the test left on the cluster:\n{left}"


@pytest.fixture
def hdfs_folder(hadoop: HadoopCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """An hdfs:// folder for the data of one test, removed after it."""
    path = f"/tests/{os.getpid()}-{request.node.name.replace('/', '-')}"
    yield f"{hadoop.hdfs_url}{path}"
    hadoop.bring_back()
    delete_folder(hadoop.ports["namenode.web"], path, user())


@pytest.fixture
def hadoop_environment(hadoop: HadoopCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """HADOOP_CONF_DIR, JAVA_HOME and PATH of this process name the cluster."""
    for name, value in hadoop.environment().items():
        monkeypatch.setenv(name, value)


def note_applications(hadoop: HadoopCluster, item: pytest.Item) -> None:
    """Before a test: when it fails, its report has what has begun or ended since."""
    item.stash[_APPLICATIONS_BEFORE] = {entry["id"]: entry["state"] for entry in hadoop.applications()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failed test's report the logs of what it started, and of what runs."""
    report = yield
    hadoop = getattr(item, "funcargs", {}).get("hadoop")
    if report.failed and hadoop is not None:
        before = item.stash.get(_APPLICATIONS_BEFORE, None)
        try:
            for entry in hadoop.applications():
                has_changed = before is not None and before.get(entry["id"]) != entry["state"]
                if has_changed or entry["state"] in _ACTIVE:
                    report.sections.append((f"{entry['id']} {entry['state']}", describe(hadoop, entry["id"])))
        except Exception as error:  # the test's own failure is what counts
            report.sections.append(("logs of containers", f"could not be read: {error}"))
        if (folder := getattr(item, "funcargs", {}).get("tmp_path")) is not None:
            report.sections += [(log.name, tail(log, LOG_BYTES)) for log in standalone_logs(folder)]
    return report


def standalone_logs(folder: Path) -> list[Path]:
    """Finds the logs of standalone processes below the folder, while a job may remove folders below it."""
    found = [
        Path(place, name)
        for place, _, names in os.walk(folder)  # unlike rglob, it passes over a folder that is gone
        for name in names
        if any(fnmatch(name, pattern) for pattern in STANDALONE_LOGS)
    ]
    return sorted(found)


def describe(cluster: HadoopCluster, application: str) -> str:
    """Diagnostics and the ends of the logs of one application."""
    parts = [str(cluster.application(application).get("diagnostics", ""))]
    parts += [f"== {name}\n{text}" for name, text in cluster.container_logs(application, LOG_BYTES).items()]
    return "\n".join(parts)
