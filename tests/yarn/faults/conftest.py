"""The session that the fault tests share. What they leave on the cluster is looked for after the last of them; after
each of them all daemons serve again, and its job is gone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import default_directory, user
from tests.support.hadoop.leftovers import Places
from tests.support.hadoop.web import delete_folder
from tests.yarn.clusters_of_runs import SHARED
from tests.yarn.conftest import KEPT, note_applications
from tests.yarn.faults.sessions import ROOT, FaultSession, SteadyJob, exchanges_by_tls
from tests.yarn.highly_available import zookeeper_client
from tests.yarn.waiting import GRACE, until
from yarrow.testing.tcp_relay import TcpRelay

PLACES = Places(znode_root="/", kept=KEPT)

StartSession = Callable[..., FaultSession]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All here are faults."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.fault)
        item.add_marker(pytest.mark.slow)
    if os.environ.get(SHARED) and Path(os.environ[SHARED]) == default_directory():
        for item in ours:
            item.add_marker(pytest.mark.skip(reason="daemons are killed, and everybody may use this cluster"))


@pytest.fixture(autouse=True)
def leaves_nothing_on_the_cluster(
    hadoop: HadoopCluster, sessions: list[FaultSession], request: pytest.FixtureRequest
) -> Iterator[None]:
    """In place of that of the folder above: sessions outlive a test here, what is stored of its jobs does not."""
    note_applications(hadoop, request.node)
    yield
    hadoop.bring_back()
    for session in [one for one in sessions if not one.has_ended()]:
        left: list[str] = []

        def is_clean(session: FaultSession = session, left: list[str] = left) -> bool:
            left[:] = [one for one in session.left_of_jobs() if one not in session.known_left]
            return not left

        with contextlib.suppress(AssertionError):
            until(is_clean, GRACE, "nothing is left of jobs")
        # Of one test, not of all that come after it.
        session.known_left.update(left)
        assert not left, f"the test left in {session.application}: {left}"


@pytest.fixture(scope="package", autouse=True)
def environment(hadoop: HadoopCluster) -> Iterator[None]:
    """This process finds HDFS as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in hadoop.environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="package", autouse=True)
def the_package_leaves_nothing(hadoop: HadoopCluster) -> Iterator[None]:
    """No application, process, znode or file outlives it."""
    before = hadoop.leftovers(PLACES)
    yield
    hadoop.bring_back()
    left = hadoop.leftovers(PLACES, before, GRACE)
    for application in left.applications:
        hadoop.kill_application(application)
    assert not left, f"the tests of faults left on the cluster:\n{left}"


@pytest.fixture(scope="package")
def storage(hadoop: HadoopCluster) -> Iterator[str]:
    """A folder on HDFS."""
    path = f"/tests/faults-{os.getpid()}"
    yield f"{hadoop.hdfs_url}{path}"
    hadoop.bring_back()
    delete_folder(hadoop.ports["namenode.web"], path, user())


@pytest.fixture(scope="package")
def sessions() -> list[FaultSession]:
    """All that were started."""
    return []


@pytest.fixture(scope="package")
def start_session(
    hadoop: HadoopCluster,
    storage: str,
    sessions: list[FaultSession],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[StartSession]:
    """Starts sessions that end with the package, those that did not before."""

    def start(name: str, quorum: str = "", **settings: str) -> FaultSession:
        folder = tmp_path_factory.mktemp(name)
        session = FaultSession(hadoop, folder, f"{storage}/{name}", name, quorum, **settings)
        sessions.append(session)
        return session

    yield start
    hadoop.bring_back()
    try:
        for session in sessions:
            session.stop()
    finally:
        with zookeeper_client(hadoop.zookeeper_quorum) as client:
            with contextlib.suppress(AssertionError):
                # A master removes the rest once YARN knows of the end.
                until(lambda: not (client.exists(ROOT) and client.get_children(ROOT)), GRACE, "they are gone")
            left = [path for path in client.get_children(ROOT)] if client.exists(ROOT) else []
            client.delete(ROOT, recursive=True)
    assert not left, f"sessions left in ZooKeeper: {left}"


@pytest.fixture(scope="package")
def relay(hadoop: HadoopCluster) -> Iterator[TcpRelay]:
    """Between the shared session and ZooKeeper."""
    host, _, port = hadoop.zookeeper_quorum.partition(":")
    with TcpRelay((host, int(port))) as made:
        yield made


@pytest.fixture(scope="package")
def session(hadoop: HadoopCluster, start_session: StartSession, relay: TcpRelay) -> Iterator[FaultSession]:
    """The one that most tests share."""
    made = start_session("shared", relay.address)
    yield made
    hadoop.bring_back()
    made.stop()


@pytest.fixture(autouse=True)
def healed(relay: TcpRelay, submitted: list[SteadyJob]) -> Iterator[None]:
    """What a test has cut is whole again before its jobs are ended."""
    yield
    relay.heal()


@pytest.fixture
def submitted(hadoop: HadoopCluster, leaves_nothing_on_the_cluster: None) -> Iterator[list[SteadyJob]]:
    """Jobs of the test that are cancelled after it, should it have failed; what they leave is looked for then."""
    jobs: list[SteadyJob] = []
    yield jobs
    hadoop.bring_back()
    for job in jobs:
        if not job.cluster.has_ended():
            job.end()


def start_job(
    session: FaultSession, submitted: list[SteadyJob], settings: Mapping[str, str] = MappingProxyType({})
) -> SteadyJob:
    """Submits the steady job; returns once it runs and has completed checkpoints."""
    started = session.submit(settings)
    submitted.append(started)
    started.until_running()
    started.until_checkpoints()
    return started


@pytest.fixture
def job(session: FaultSession, submitted: list[SteadyJob]) -> SteadyJob:
    """The steady job in the shared session, running and with completed checkpoints."""
    started = start_job(session, submitted)
    assert exchanges_by_tls(*session.two_task_executors())
    return started
