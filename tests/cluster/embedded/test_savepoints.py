"""Checkpoints and savepoints of a keyed job on real workers: taken, stopped with, restored at another parallelism."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cluster.embedded.waiting import wait_until
from yarrow.cli.main import app
from yarrow.client.rest.rest_client import RestClient
from yarrow.client.rest.rest_operations import run_operation
from yarrow.common import JobStatus, Types
from yarrow.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError, RestoreError
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.snapshot.handles import RocksDBSnapshot
from yarrow.runtime.snapshot.opening import open_snapshot

pytestmark = pytest.mark.cluster

#: So many that no job is at its end before the test lets the rows pass.
ROWS, KEYS = 200_000, 8


class Slow(MapFunction[int, int]):
    """Lets at most two thousand rows a second pass, and all at once where there is a file `fast`."""

    def __init__(self, folder: Path) -> None:
        self._fast = str(folder / "fast")

    def open(self, runtime_context: RuntimeContext) -> None:
        self._pause = threading.Event()

    def map(self, value: int) -> int:
        if value % 10 == 0 and not os.path.exists(self._fast):
            self._pause.wait(0.005)
        return value


class Total(KeyedProcessFunction[int, int, tuple[int, int]]):
    """Counts the rows of each key; tells of the count at which all have come, and of any beyond."""

    _count: ValueState[int]

    def __init__(self, begun: Path) -> None:
        #: A file that is there once a row has been counted.
        self._begun = begun

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: int, ctx: Any) -> Iterable[tuple[int, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if count == 1:
            self._begun.touch()
        if count >= ROWS // KEYS:
            yield (value % KEYS, count)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2) as running:
        yield running


def submitted(
    cluster: MiniCluster, output: Path, parallelism: int, name: str = "totals", **settings: str
) -> LocalJobClient:
    """The job, which appends what it tells of to a file for each subtask."""
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    env = cluster.get_execution_environment(keys).set_parallelism(parallelism)
    slow = env.from_sequence(1, ROWS).uid("numbers").map(Slow(output)).uid("slow")
    totals = slow.key_by(lambda value: value % KEYS).process(Total(output / "begun")).uid("total")
    folder = str(output)

    def write(total: tuple[int, int]) -> tuple[int, int]:
        with open(f"{folder}/told", "a") as file:
            file.write(f"{total[0]} {total[1]}\n")
        return total

    totals.map(write).uid("write").print()
    return cluster.submit(env.get_job_graph(name))


def finished(client: LocalJobClient, output: Path) -> None:
    """Lets the rows pass, and returns at the end of the job."""
    (output / "fast").touch()
    client.get_job_execution_result().result()


def told(output: Path) -> list[tuple[int, int]]:
    return sorted(tuple(map(int, line.split())) for line in (output / "told").read_text().splitlines())  # type: ignore[misc]


EXACT = [(key, ROWS // KEYS) for key in range(KEYS)]
CHECKPOINTED = {"execution__checkpointing__interval": "100 ms"}
ROCKSDB = {
    "state__backend__type": "rocksdb",
    "state__backend__rocksdb__memory__fixed_per_slot": "16 mb",
    "execution__checkpointing__incremental": "true",
}


def rest(cluster: MiniCluster, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.web_address}{path}") as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def until_completed(cluster: MiniCluster, client: LocalJobClient, number: int = 1) -> dict[str, Any]:
    path = f"/jobs/{client.get_job_id()}/checkpoints"
    wait_until(lambda: rest(cluster, path)["counts"]["completed"] >= number, lambda: str(rest(cluster, path)))
    return rest(cluster, path)


def until_running(cluster: MiniCluster, client: LocalJobClient) -> None:
    path = f"/jobs/{client.get_job_id()}"
    wait_until(
        lambda: all(
            each["tasks"]["RUNNING"] + each["tasks"]["FINISHED"] == each["parallelism"]
            for each in rest(cluster, path)["vertices"]
        )
    )


def test_stopped_and_restored_at_other_parallelisms_totals_are_exact(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    client = submitted(cluster, tmp_path, 2, execution__checkpointing__dir=f"{tmp_path}/chk", **CHECKPOINTED)
    until_completed(cluster, client)
    savepoint = client.trigger_savepoint(f"{tmp_path}/sp").result()
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert open_snapshot(savepoint).metadata.kind is SnapshotKind.SAVEPOINT
    first = client.stop_with_savepoint(False, f"{tmp_path}/sp").result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    client = submitted(cluster, tmp_path, 3, execution__state_recovery__path=first)
    until_running(cluster, client)
    latest = rest(cluster, f"/jobs/{client.get_job_id()}/checkpoints")["latest"]
    assert latest["restored"]["external_path"] == first and latest["restored"]["is_savepoint"]
    second = client.stop_with_savepoint(False, f"{tmp_path}/sp").result()
    assert not (tmp_path / "told").exists(), "it was stopped before its end"
    client = submitted(cluster, tmp_path, 1, execution__state_recovery__path=second)
    finished(client, tmp_path)
    assert told(tmp_path) == EXACT


def files_of(path: str) -> tuple[set[str], int]:
    """Shared files of a snapshot, and how many databases are in it."""
    metadata = open_snapshot(path).metadata
    databases = [
        keyed
        for operator in metadata.operators
        for subtask in operator.subtasks.values()
        for keyed in subtask.keyed
        if isinstance(keyed, RocksDBSnapshot)
    ]
    return {file.path for file in metadata.shared_files()}, len(databases)


def test_native_savepoints_and_full_checkpoints_of_databases(cluster: MiniCluster, tmp_path: Path) -> None:
    rocksdb = {**ROCKSDB, "execution__checkpointing__num_retained": "100000"}
    client = submitted(
        cluster, tmp_path, 2, execution__checkpointing__dir=f"{tmp_path}/chk", **rocksdb, **CHECKPOINTED
    )
    until_completed(cluster, client, 2)
    job = f"/jobs/{client.get_job_id()}"
    assert cluster.web_address is not None
    host, _, port = cluster.web_address.removeprefix("http://").partition(":")
    client_of_rest = RestClient(host, int(port))
    body = {"checkpointType": "FULL"}
    full = run_operation(client_of_rest, f"{job}/checkpoints", body, f"{job}/checkpoints")["checkpointId"]
    body = {"target-directory": f"{tmp_path}/sp", "formatType": "NATIVE"}
    native = run_operation(client_of_rest, f"{job}/savepoints", body, f"{job}/savepoints")["location"]
    shown = rest(cluster, f"{job}/checkpoints")
    assert shown["latest"]["savepoint"]["savepointFormat"] == "NATIVE"
    assert files_of(native)[0] == set() and files_of(native)[1] > 0
    folder = tmp_path / "chk" / str(client.get_job_id())
    # But for those that failed, which have no metadata.
    complete = {int(path.parent.name.removeprefix("chk-")) for path in folder.glob("chk-*/_metadata")}
    earlier = [files_of(str(folder / f"chk-{number}"))[0] for number in complete if number < full]
    assert len(earlier) >= 2
    shared, databases = files_of(str(folder / f"chk-{full}"))
    assert shared and databases and not shared & set().union(*earlier)
    client.cancel().result()
    assert client.get_job_execution_result().exception() is not None
    # The files of checkpoints are gone; at another parallelism the database is divided.
    client = submitted(cluster, tmp_path, 3, execution__state_recovery__path=native, **rocksdb)
    finished(client, tmp_path)
    assert told(tmp_path) == EXACT


@pytest.mark.parametrize("backend", [{}, ROCKSDB], ids=["heap", "shared files"])
def test_a_retained_checkpoint_restores_and_nothing_of_a_finished_job_is_left(
    cluster: MiniCluster, tmp_path: Path, backend: dict[str, str]
) -> None:
    chk = tmp_path / "chk"
    client = submitted(
        cluster,
        tmp_path,
        2,
        execution__checkpointing__dir=str(chk),
        execution__checkpointing__externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
        **CHECKPOINTED,
        **backend,
    )
    until_completed(cluster, client, 2)
    client.cancel().result()
    assert client.get_job_execution_result().exception() is not None
    statistics = rest(cluster, f"/jobs/{client.get_job_id()}/checkpoints")
    path = statistics["latest"]["completed"]["external_path"]
    # The folder of one that was under way goes soon after.
    folder = chk / str(client.get_job_id())
    wait_until(lambda: [each.name for each in folder.glob("chk-*")] == [Path(path).name])
    shared = [Path(file) for file in files_of(path)[0]]
    assert all(file.exists() for file in shared) and bool(shared) is bool(backend)
    client = submitted(
        cluster,
        tmp_path,
        2,
        execution__checkpointing__dir=str(chk),
        execution__state_recovery__path=path,
        execution__state_recovery__claim_mode="CLAIM",
        **CHECKPOINTED,
        **backend,
    )
    until_completed(cluster, client)
    wait_until(
        lambda: not any(file.exists() for file in (Path(path), *shared)),
        lambda: "what was claimed is deleted when it is subsumed, shared files too",
    )
    finished(client, tmp_path)
    assert told(tmp_path) == EXACT
    # A worker that was writing as the job ended removes its file, and then the folder goes.
    wait_until(lambda: not (chk / str(client.get_job_id())).exists())


def test_a_job_that_does_not_fit_is_refused_before_anything_starts(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    client = submitted(cluster, tmp_path, 2)
    # An operator that has kept nothing is in no savepoint.
    wait_until((tmp_path / "begun").exists)
    path = client.stop_with_savepoint(False, f"{tmp_path}/sp").result()
    env = cluster.get_execution_environment({"execution.state-recovery.path": path})
    env.from_sequence(1, 9).uid("numbers").print()
    with pytest.raises(RestoreError, match=r"operator 'KeyedProcess' \(uid 'total'.*is not in the job"):
        cluster.submit(env.get_job_graph("other"))
    with pytest.raises(RestoreError, match=f"{tmp_path}/nothing"):
        submitted(cluster, tmp_path, 2, execution__state_recovery__path=f"{tmp_path}/nothing")
    metadata = Path(path) / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    with pytest.raises(RestoreError, match=r"_metadata.*truncated"):
        submitted(cluster, tmp_path, 2, execution__state_recovery__path=path)


def test_a_drained_job_is_at_its_end_and_takes_no_other_source(cluster: MiniCluster, tmp_path: Path) -> None:
    client = submitted(cluster, tmp_path, 2)
    until_running(cluster, client)
    path = client.stop_with_savepoint(True, f"{tmp_path}/sp").result()
    again = submitted(cluster, tmp_path, 2, execution__state_recovery__path=path)
    again.get_job_execution_result().result()
    assert not (tmp_path / "told").exists(), "nothing is read behind the end"
    keys = {"execution.state-recovery.path": path, "execution.state-recovery.ignore-unclaimed-state": "true"}
    for chained in (True, False):
        env = cluster.get_execution_environment(keys).set_parallelism(2)
        numbers = env.from_sequence(1, 9).uid("other numbers")
        rows = numbers.map(Slow(tmp_path)).uid("slow") if chained else numbers
        rows.key_by(lambda value: value % KEYS).process(Total(tmp_path / "begun")).uid("total").print()
        # It would read nothing, or its rows would go nowhere.
        with pytest.raises(RestoreError, match=r"had finished when the snapshot was taken.*another uid"):
            cluster.submit(env.get_job_graph("another source"))


def test_a_storage_that_cannot_be_written_is_found_at_submission(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(RestoreError, match=r"file/chk.*execution\.checkpointing\.dir"):
        submitted(cluster, tmp_path, 1, execution__checkpointing__dir=f"{blocked}/chk", **CHECKPOINTED)


def put_in_the_way_of(folder: Path, gone: Path) -> None:
    """Puts a file in the place of a folder, which a checkpoint may make again as soon as it is gone."""
    for number in itertools.count():
        folder.rename(gone.with_name(f"{gone.name}-{number}"))
        with suppress(IsADirectoryError):
            folder.write_text("in the way")
            return


def test_a_folder_that_goes_bad_fails_checkpoints_and_not_the_job(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    chk = tmp_path / "chk"
    client = submitted(
        cluster,
        tmp_path,
        2,
        execution__checkpointing__dir=str(chk),
        execution__checkpointing__tolerable_failed_checkpoints="1000",
        **CHECKPOINTED,
    )
    until_completed(cluster, client)
    job_folder = chk / str(client.get_job_id())
    put_in_the_way_of(job_folder, tmp_path / "gone")
    path = f"/jobs/{client.get_job_id()}/checkpoints"
    wait_until(lambda: rest(cluster, path)["counts"]["failed"] >= 2)
    assert str(chk) in rest(cluster, path)["latest"]["failed"]["failure_message"]
    failed = client.trigger_savepoint(f"{job_folder}/sp").exception()
    assert isinstance(failed, CheckpointFailedError) and str(job_folder) in str(failed)
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result()


def _form_of(path: str) -> str:
    """A savepoint's path up to what differs between two savepoints of a job."""
    begin, dash, _ = path.rpartition("-")
    return begin + dash


def test_commands_say_what_scripts_look_for(cluster: MiniCluster, tmp_path: Path) -> None:
    assert cluster.web_address is not None
    at = ["-m", cluster.web_address.removeprefix("http://")]
    client = submitted(cluster, tmp_path, 1)
    until_running(cluster, client)
    job = str(client.get_job_id())

    def yarrow(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, *at])
        assert done.exit_code == 0, done.output
        return done.output

    assert f"Checkpoint 1 for job {job} completed." in yarrow("checkpoint", job)
    said = yarrow("savepoint", job, f"{tmp_path}/sp")
    assert said.startswith(f"Triggering savepoint for job {job}.\nWaiting for response...\n")
    path = said.partition("Savepoint completed. Path: ")[2].splitlines()[0]
    assert Path(path, "_metadata").exists()
    assert Path(path).parent == tmp_path / "sp"
    assert f"Savepoint '{path}' disposed." in yarrow("savepoint", "-d", path)
    assert not Path(path).exists()
    said = yarrow("stop", job, "-p", f"{tmp_path}/sp", "--drain")
    assert f'Draining job "{job}" with a CANONICAL savepoint.' in said
    stopped = said.partition("Savepoint completed. Path: ")[2].splitlines()[0]
    # The same form as that of `savepoint`: folder, then the name with the first figures of the job's id.
    assert _form_of(stopped) == _form_of(path) == f"{tmp_path}/sp/savepoint-{job[:6]}-"
    assert Path(stopped, "_metadata").exists()
    client.get_job_execution_result().result()
    client = submitted(cluster, tmp_path, 1)
    until_running(cluster, client)
    job = str(client.get_job_id())
    said = yarrow("cancel", "-s", f"{tmp_path}/sp", job)
    assert f"Cancelled job {job}. Savepoint stored in {tmp_path}/sp/savepoint-" in said
    assert client.get_job_status().result() is JobStatus.CANCELED


_PROGRAM = """
import sys
from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import ValueStateDescriptor

class Total(KeyedProcessFunction):
    def open(self, context):
        self._count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        if count >= 25000:
            yield f"key {value % 8} has {count}"

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_sequence(1, 200000).uid("numbers").map(lambda value: value).uid("slow")
numbers.key_by(lambda value: value % 8).process(Total()).uid(sys.argv[1]).print()
env.execute("again")
"""


def test_a_program_is_checked_against_a_savepoint_and_begins_from_it(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    client = submitted(cluster, tmp_path, 2)
    wait_until((tmp_path / "begun").exists)
    path = client.stop_with_savepoint(False, f"{tmp_path}/sp").result()
    program = tmp_path / "again.py"
    program.write_text(_PROGRAM)

    def yarrow(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "yarrow.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)

    checked = yarrow("check-savepoint", str(program), path, "other")
    assert checked.returncode == 1 and "(uid total) refused: " in checked.stdout
    checked = yarrow("check-savepoint", str(program), path, "total")
    assert checked.returncode == 0 and "(uid total) restores: " in checked.stdout
    refused = yarrow("run", "-s", path, str(program), "other")
    assert refused.returncode == 1 and "has state in the snapshot and is not in the job" in refused.stderr
    done = yarrow("run", "-s", path, "-cm", "no_claim", str(program), "total")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("key")) == [
        f"key {key} has 25000" for key in range(8)
    ]
    assert Path(path, "_metadata").exists(), "what is not claimed stays"
