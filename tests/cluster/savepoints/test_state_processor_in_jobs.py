"""Savepoints made and changed by the state processor, restored by jobs; the examples; check-savepoint."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.cluster.savepoints.all_kinds import RECENT, ROWS, allow, build, is_running, rows_until, wait_at
from tests.cluster.savepoints.checked_states import check_states, column_by_key
from tests.format.golden_snapshots import native_checkpoint, savepoint
from tests.format.make_golden_savepoint import DUE, LIMIT
from tests.unit.state_processor.bootstrapped import Bootstrap, Job
from yarrow.common import Types
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.state_processor import OperatorTransformation, SavepointReader, SavepointWriter
from yarrow.testing.transactional_files import CommittedFiles

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 2}
    with mini_cluster(task_executors=1, slots=2, configuration=fixed) as running:
        yield running


def settings(path: str, backend: str) -> dict[str, str]:
    return {
        "state.backend.type": backend,
        "parallelism.default": "2",
        "restart-strategy.type": "none",
        "execution.checkpointing.interval": "200 ms",
        "execution.state-recovery.path": path,
    }


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_bootstrapped_savepoint_begins_a_job(cluster: MiniCluster, tmp_path: Path, backend: str) -> None:
    rows = [(f"k{number % 7}", "x" * (number % 5)) for number in range(700)]
    made = OperatorTransformation.bootstrap_with(rows[:400]).key_by(lambda row: row[0]).transform(Bootstrap())
    path = SavepointWriter.new_savepoint(64).with_operator("op", made).write(f"{tmp_path}/made")
    env = cluster.get_execution_environment(settings(path, backend))
    told = tmp_path / "told"

    def write(row: Any) -> Any:
        with open(told, "a") as file:
            file.write(json.dumps([row[0], row[1], len(row[2]) if len(row) > 3 else -1, row[-1]]) + "\n")
        return row

    source = env.from_collection(rows[400:]).uid("source")
    source.key_by(lambda row: row[0], Types.STRING()).process(Job()).uid("op").map(write).uid("write").print()
    cluster.submit(env.get_job_graph("bootstrapped")).get_job_execution_result().result()
    found = [json.loads(line) for line in told.read_text().splitlines()]
    last = {key: (count, names, total) for key, count, names, total in found if count != "timer"}
    for key in {row[0] for row in rows}:
        own = [row[1] for row in rows if row[0] == key]
        assert last[key] == (len(own), len(own), sum(map(len, own)))
    timers = {(key, timestamp) for key, kind, _, timestamp in found if kind == "timer"}
    assert timers == {(row[0], 1000 * len(row[1])) for row in rows[:400]}, "at the end of event time all fire"


@pytest.mark.parametrize(("snapshot", "backend"), [(savepoint, "rocksdb"), (native_checkpoint, "hashmap")])
def test_a_changed_savepoint_of_a_job_is_restored_by_it(
    cluster: MiniCluster, tmp_path: Path, snapshot: Any, backend: str
) -> None:
    """A native checkpoint becomes a savepoint on the way, which every backend restores."""
    path = snapshot(tmp_path)
    changed = (
        SavepointWriter.from_existing_savepoint(path)
        .transform_state(
            "kinds", "recent", lambda t: t.set_column(1, "value", pc.add(t["value"], 1000)), RECENT
        )
        .write(f"{tmp_path}/changed")
    )
    allow(tmp_path, LIMIT + 5)
    env = cluster.get_execution_environment(settings(changed, backend))
    build(env, tmp_path, due=DUE)
    client = cluster.submit(env.get_job_graph("changed"))
    wait_until(lambda: is_running(client))
    wait_at(tmp_path, LIMIT + 5)
    after = client.stop_with_savepoint(False, f"{tmp_path}/after").result()
    with SavepointReader.read(after) as reader:
        recent = column_by_key(reader.read_keyed_state("kinds", "recent"))
        count = column_by_key(reader.read_keyed_state("kinds", "count"))
    assert recent == {key: number + 1000 for key, number in count.items()}
    assert sum(count.values()) == len(rows_until(LIMIT + 5))
    back = SavepointWriter.from_existing_savepoint(after).transform_state(
        "kinds", "recent", lambda t: t.set_column(1, "value", pc.subtract(t["value"], 1000))
    )
    check_states(back.write(f"{tmp_path}/back"), LIMIT + 5, DUE)
    assert len(CommittedFiles(tmp_path / "sink").committed_twice()) == 0
    assert ROWS > LIMIT + 5


def yarrow(*arguments: str) -> subprocess.CompletedProcess[str]:
    root = str(EXAMPLES.parent)
    return subprocess.run(
        [sys.executable, "-m", "yarrow.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )


def test_the_repair_by_replay_from_the_command_line(cluster: MiniCluster, tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / "replay_repair.py"))
    assert cluster.web_address is not None
    at = ["-m", cluster.web_address.removeprefix("http://")]
    program = [str(EXAMPLES / "replay_repair.py"), "--log", f"{tmp_path}/log"]
    log = tmp_path / "log"
    log.mkdir()
    monday, tuesday = example["MONDAY"], example["TUESDAY"]
    (log / "monday").write_text("\n".join(monday) + "\n")

    def start(*flags: str) -> str:
        done = yarrow("run", "-d", *at, *flags)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout.partition("JobID ")[2].split()[0]

    def stop_at(job: str, lines: int) -> tuple[str, dict[str, int]]:
        """Savepoints until all lines are in one, then the job is stopped with another."""

        def taken() -> bool:
            done = yarrow("savepoint", job, f"{tmp_path}/savepoints", *at)
            path = done.stdout.partition("Path: ")[2].splitlines()
            return bool(path) and total_of(path[0])[1] == lines

        wait_until(taken)
        stopped = yarrow("stop", job, "-p", f"{tmp_path}/savepoints", *at)
        assert stopped.returncode == 0, stopped.stderr
        path = stopped.stdout.partition("Savepoint completed. Path: ")[2].splitlines()[0]
        return path, example["totals_in"](path)[0]

    def total_of(path: str) -> tuple[dict[str, int], int]:
        try:
            found: tuple[dict[str, int], int] = example["totals_in"](path)
        except example["StateProcessorError"]:
            return {}, 0
        return found

    before, totals = stop_at(start(*program), len(monday))
    assert totals == {"ann": 700, "bob": 500}
    (log / "tuesday").write_text("\n".join(tuesday) + "\n")
    _, wrong = stop_at(start("-s", before, *program, "--wrong"), len(monday) + len(tuesday))
    assert wrong != example["RIGHT"]
    checked = yarrow("check-savepoint", "--json", program[0], before, *program[1:])
    report = json.loads(checked.stdout)
    assert report["restorable"] and checked.returncode == 0
    of_totals = next(each for each in report["operators"] if each["uid"] == "totals")
    assert of_totals["outcome"] == "restores"
    assert {"name": "total", "kind": "value", "type": "Long", "pickled": False} in of_totals["states"]
    _, repaired = stop_at(start("-s", before, *program), len(monday) + len(tuesday))
    assert repaired == example["RIGHT"]


def test_check_savepoint_says_what_does_not_restore(tmp_path: Path) -> None:
    program = [str(EXAMPLES / "replay_repair.py")]
    path = savepoint(tmp_path)
    refused = yarrow("check-savepoint", *program, path, "--log", str(tmp_path))
    assert refused.returncode == 1
    assert "6 of 9 operators keep the program from being restored." in refused.stdout
    assert "recent by split                 expiring map of String to Long" in refused.stdout
    assert "give" in refused.stdout.lower() and "uid('kinds')" in refused.stdout
    dropped = yarrow("check-savepoint", "-n", "--json", *program, path, "--log", str(tmp_path))
    report = json.loads(dropped.stdout)
    assert dropped.returncode == 0 and report["restorable"]
    assert {each["outcome"] for each in report["operators"]} == {"is new", "would be dropped"}
    absent = yarrow("check-savepoint", *program, f"{tmp_path}/nothing", "--log", str(tmp_path))
    assert absent.returncode != 0 and f"{tmp_path}/nothing" in absent.stderr + absent.stdout


def test_state_as_a_table() -> None:
    example = runpy.run_path(str(EXAMPLES / "state_as_table.py"))
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "state_as_table.py")],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "[('ann', 1025), ('cid', 5)]"
    assert example["HISTORY"].num_rows == 3
