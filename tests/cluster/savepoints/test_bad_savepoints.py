"""Savepoints and checkpoints that cannot be restored: refused by operator, state and path; nothing is harmed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import ROWS, allow, build, expected_output, is_running
from tests.format.golden_snapshots import native_checkpoint, savepoint
from tests.format.make_golden_savepoint import DUE
from yarrow.common import JobStatus, Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.state import ListStateDescriptor, StateDescriptor, ValueStateDescriptor
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError, JobExecutionError, RestoreError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.checkpoint_statistics import CheckpointStatistics
from yarrow.testing.transactional_files import CommittedFiles

pytestmark = pytest.mark.cluster

BACKENDS = ["hashmap", "rocksdb"]
#: (snapshot, the backend that reads it)
SNAPSHOTS = [(savepoint, "hashmap"), (savepoint, "rocksdb"), (native_checkpoint, "rocksdb")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 2}
    with mini_cluster(task_executors=1, slots=2, configuration=fixed) as running:
        yield running


def environment(
    cluster: MiniCluster, path: str, backend: str = "hashmap", **settings: str
) -> StreamExecutionEnvironment:
    keys = {
        "state.backend.type": backend,
        "parallelism.default": "2",
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": "200 ms",
        "execution.state-recovery.path": path,
        **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()},
    }
    return cluster.get_execution_environment(keys)


def submit_all_kinds(
    cluster: MiniCluster, folder: Path, path: str, backend: str = "hashmap", **settings: str
) -> LocalJobClient:
    allow(folder, ROWS)
    env = environment(cluster, path, backend, **settings)
    build(env, folder, due=DUE)
    return cluster.submit(env.get_job_graph("all kinds"))


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file of snapshots and everything that was committed: not the marks of readers, nor open transactions."""
    return {
        file: file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith("at-") and file.parent.name != "open"
    }


@contextmanager
def refused(cluster: MiniCluster, folder: Path, error: type[Exception], match: str) -> Iterator[None]:
    """What happens within is refused with such a message, no job is known afterwards and no file has changed."""
    allow(folder, ROWS)
    files, jobs = contents(folder), len(cluster.running_jobs())
    with pytest.raises(error, match=match):
        yield
    assert len(cluster.running_jobs()) == jobs
    assert contents(folder) == files


def flip(file: Path) -> None:
    """Changes one bit in the middle."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def truncate(file: Path) -> None:
    """Leaves the last byte out."""
    file.write_bytes(file.read_bytes()[:-1])


def state_file(path: str) -> Path:
    """The largest file of state in a snapshot."""
    return max(Path(path).glob("state-*"), key=lambda file: file.stat().st_size)


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("harm", [truncate, Path.unlink])
@pytest.mark.parametrize(("snapshot", "backend"), SNAPSHOTS[1:])
def test_missing_and_truncated_state_files_are_found_before_the_job_starts(
    cluster: MiniCluster,
    tmp_path: Path,
    snapshot: Callable[[Path], str],
    backend: str,
    harm: Callable[[Path], None],
) -> None:
    path = snapshot(tmp_path)
    file = state_file(path)
    harm(file)
    problem = "is missing" if harm is Path.unlink else r"has \d+ bytes of \d+"
    with refused(cluster, tmp_path, RestoreError, rf"{file} \(operator '[^']+'\) {problem}"):
        submit_all_kinds(cluster, tmp_path, path, backend)


def test_a_missing_shared_file_is_found_before_the_job_starts(cluster: MiniCluster, tmp_path: Path) -> None:
    path = native_checkpoint(tmp_path)
    file = min((tmp_path / "checkpoints" / "shared").iterdir())
    file.unlink()
    with refused(cluster, tmp_path, RestoreError, rf"{file} \(operator 'KeyedProcess'\) is missing"):
        submit_all_kinds(cluster, tmp_path, path, "rocksdb")


@pytest.mark.parametrize(("snapshot", "backend"), SNAPSHOTS)
def test_a_flipped_byte_of_state_fails_the_job_by_file_and_operator(
    cluster: MiniCluster, tmp_path: Path, snapshot: Callable[[Path], str], backend: str
) -> None:
    path = snapshot(tmp_path)
    file = state_file(path)
    if snapshot is native_checkpoint:
        file = max((tmp_path / "checkpoints" / "shared").iterdir(), key=lambda each: each.stat().st_size)
    flip(file)
    with refused(cluster, tmp_path, JobExecutionError, rf"(?s){file}.*operator '[^']+'.*SHA-256"):
        submit_all_kinds(cluster, tmp_path, path, backend).get_job_execution_result().result()


@pytest.mark.parametrize("harm", [flip, truncate, Path.unlink])
def test_harmed_metadata_are_found_before_the_job_starts(
    cluster: MiniCluster, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    path = savepoint(tmp_path)
    harm(Path(path, "_metadata"))
    match = {flip: "SHA-256 differs", truncate: "truncated or torn", Path.unlink: "was never completed"}[harm]
    with refused(cluster, tmp_path, RestoreError, rf"{path}.*{match}"):
        submit_all_kinds(cluster, tmp_path, path)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everywhere: somebody else may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_savepoint_that_nobody_may_read_is_named(cluster: MiniCluster, tmp_path: Path) -> None:
    path = savepoint(tmp_path)
    env = environment(cluster, path)
    build(env, tmp_path, due=DUE)
    graph = env.get_job_graph("all kinds")
    before = contents(tmp_path)
    os.chmod(path, 0)
    try:
        with without_privileges(), pytest.raises(RestoreError, match=rf"{path}.*[Pp]ermission"):
            cluster.submit(graph)
    finally:
        os.chmod(path, 0o755)
    assert contents(tmp_path) == before


def test_a_folder_in_which_nobody_may_write_fails_the_savepoint_and_not_the_job(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    path = savepoint(tmp_path)
    allow(tmp_path, 30)
    env = environment(cluster, path)
    build(env, tmp_path, due=DUE)
    client = cluster.submit(env.get_job_graph("all kinds"))
    wait_until(lambda: is_running(client))
    target = tmp_path / "closed"
    target.mkdir(mode=0o500)
    with without_privileges():
        failed = client.trigger_savepoint(str(target)).exception()
    assert isinstance(failed, CheckpointFailedError) and str(target) in str(failed), failed
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert list(target.iterdir()) == []
    allow(tmp_path, ROWS)
    client.get_job_execution_result().result()
    assert sorted(CommittedFiles(tmp_path / "sink").rows(), key=repr) == expected_output(fired=False)


def without_restore(cluster: MiniCluster, folder: Path) -> StreamExecutionEnvironment:
    """The job from its beginning, with checkpoints in a folder."""
    settings = {
        "execution__checkpointing__dir": str(folder),
        "execution__checkpointing__tolerable_failed_checkpoints": "1000",
    }
    env = environment(cluster, "", **settings)
    env.get_configuration().remove_config("execution.state-recovery.path")
    return env


def test_a_checkpoint_folder_in_which_nobody_may_write_is_refused(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    env = without_restore(cluster, closed)
    build(env, tmp_path, due=DUE)
    graph = env.get_job_graph("all kinds")
    with (
        refused(cluster, tmp_path, RestoreError, rf"{closed} \(execution.checkpointing.dir\).*[Pp]ermission"),
        without_privileges(),
    ):
        cluster.submit(graph)


def test_a_checkpoint_folder_that_is_closed_later_fails_checkpoints_and_not_the_job(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    allow(tmp_path, 30)
    env = without_restore(cluster, folder)
    build(env, tmp_path, due=DUE)
    client = cluster.submit(env.get_job_graph("all kinds"))
    job_id = JobID(str(client.get_job_id()))

    def statistics() -> CheckpointStatistics:
        return LoopThread.shared().call(cluster.cluster.dispatcher.request_checkpoint_statistics(job_id))

    wait_until(lambda: statistics().counts.completed > 0)
    failed = statistics().counts.failed
    os.chmod(folder / job_id, 0o500)
    with without_privileges():
        wait_until(lambda: statistics().counts.failed >= failed + 3)
    os.chmod(folder / job_id, 0o755)
    latest, completed = statistics().latest.failed, statistics().counts.completed
    assert latest is not None and re.search(rf"{folder}/{job_id}.*ermission", latest.failure_message)
    wait_until(lambda: statistics().counts.completed > completed)
    assert client.get_job_details().result().restarts == 0
    allow(tmp_path, ROWS)
    client.get_job_execution_result().result()
    assert sorted(CommittedFiles(tmp_path / "sink").rows(), key=repr) == expected_output(fired=False)


# ---------------------------------------------------------------------- programs


def test_a_savepoint_of_another_job_is_refused(cluster: MiniCluster, tmp_path: Path) -> None:
    path = savepoint(tmp_path)
    env = environment(cluster, path)
    env.from_sequence(1, 9).uid("numbers").key_by(lambda n: n % 2).process(Changed(NUMBER)).uid(
        "other"
    ).print()
    with refused(
        cluster,
        tmp_path,
        RestoreError,
        rf"{path}.*operator '[^']+' \(uid '[^']+'.*of job 'golden'.*is not in the job",
    ):
        cluster.submit(env.get_job_graph("other"))


@pytest.mark.parametrize("setting", ["pipeline.max-parallelism"])
def test_another_max_parallelism_is_refused(cluster: MiniCluster, tmp_path: Path, setting: str) -> None:
    path = savepoint(tmp_path)
    with refused(
        cluster,
        tmp_path,
        RestoreError,
        rf"{path}.*operator 'KeyedProcess'.*max parallelism 128, the job has 64",
    ):
        submit_all_kinds(cluster, tmp_path, path, **{setting.replace(".", "__").replace("-", "_"): "64"})


class Changed(KeyedProcessFunction[Any, Any, Any]):
    """Declares one state, otherwise than it was."""

    def __init__(self, descriptor: StateDescriptor) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._descriptor, ValueStateDescriptor):
            self.value = runtime_context.get_state(self._descriptor)
        elif isinstance(self._descriptor, ListStateDescriptor):
            runtime_context.get_list_state(self._descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield (ctx.get_current_key(), self.value.value())


NUMBER: ValueStateDescriptor[int] = ValueStateDescriptor("count", Types.LONG())


def submit_changed(
    cluster: MiniCluster, folder: Path, path: str, backend: str, descriptor: StateDescriptor, **settings: str
) -> LocalJobClient:
    """A program of which the operator 'kinds' alone is left."""
    env = environment(cluster, path, backend, **settings)
    keys = env.from_collection([f"k{number}" for number in range(9)]).uid("keys")
    told = folder.parent / f"{folder.name}-told"

    def write(row: Any) -> Any:
        with open(told, "a") as file:
            file.write(f"{row!r}\n")
        return row

    counted = keys.key_by(lambda key: key, Types.STRING()).process(Changed(descriptor)).uid("kinds")
    counted.name("changed").map(write).uid("write").print()
    return cluster.submit(env.get_job_graph("changed"))


IGNORING = {"execution__state_recovery__ignore_unclaimed_state": "true"}


@pytest.mark.parametrize(("snapshot", "backend"), SNAPSHOTS)
@pytest.mark.parametrize(
    ("descriptor", "match"),
    [
        (ValueStateDescriptor("count", Types.STRING()), r"operator 'changed', state 'count': .*Long.*String"),
        (
            ListStateDescriptor("count", Types.LONG()),
            r"operator 'changed', state 'count': .*value state.*list state",
        ),
        (
            ValueStateDescriptor("total", Types.ROW_NAMED(["rows", "value"], [Types.LONG(), Types.STRING()])),
            r"operator 'changed', state 'total', field 'value': .*Long.*String",
        ),
    ],
)
def test_a_state_of_another_type_fails_the_job_by_operator_state_and_field(
    cluster: MiniCluster,
    tmp_path: Path,
    snapshot: Callable[[Path], str],
    backend: str,
    descriptor: StateDescriptor,
    match: str,
) -> None:
    path = snapshot(tmp_path)
    with refused(cluster, tmp_path, JobExecutionError, match):
        client = submit_changed(cluster, tmp_path, path, backend, descriptor, **IGNORING)
        client.get_job_execution_result().result()


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropped_operators_are_refused_unless_their_state_may_be_dropped(
    cluster: MiniCluster, tmp_path: Path, backend: str
) -> None:
    path = savepoint(tmp_path)
    with refused(
        cluster, tmp_path, RestoreError, r"operator '[^']+' \(uid 'rows'.*is not in the job.*run -n"
    ):
        submit_changed(cluster, tmp_path, path, backend, NUMBER)
    files = contents(tmp_path)
    submit_changed(cluster, tmp_path, path, backend, NUMBER, **IGNORING).get_job_execution_result().result()
    lines = (tmp_path.parent / f"{tmp_path.name}-told").read_text().splitlines()
    found = dict(tuple(eval(line)) for line in lines)
    assert sum(found.values()) == 100 and len(found) == 9, "the counts of the savepoint"
    assert contents(tmp_path) == files


def test_after_all_refusals_the_right_job_restores(cluster: MiniCluster, tmp_path: Path) -> None:
    path = savepoint(tmp_path)
    wait_until(lambda: not cluster.running_jobs())
    # Its only checkpoint is the last one: none finds some subtasks of the union list ended, and others not.
    job = submit_all_kinds(cluster, tmp_path, path, execution__checkpointing__interval="1 h")
    job.get_job_execution_result().result()
    assert sorted(CommittedFiles(tmp_path / "sink").rows(), key=repr) == expected_output(fired=False)
