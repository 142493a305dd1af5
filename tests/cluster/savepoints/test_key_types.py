"""Keys of another type than those of a savepoint: refused by operator before anything runs; all others are restored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.cluster.savepoints.all_kinds import (
    ROWS,
    SPLITS,
    StepSource,
    allow,
    is_running,
    rows_until,
    wait_at,
)
from yarrow.common import TypeInformation, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import RestoreError
from yarrow.state_processor import OperatorTransformation, SavepointReader, SavepointWriter

pytestmark = pytest.mark.cluster

#: Rows of each split that had passed.
LIMIT = 25
BACKENDS = ["hashmap", "rocksdb"]
ROOT = Path(__file__).parents[3]


class FailsOnce(MapFunction[Any, Any]):
    """At a row behind the gate, where it is told to."""

    def __init__(self, folder: str, fails: bool) -> None:
        self._mark, self._fails = f"{folder}/failed", fails

    def map(self, value: Any) -> Any:
        if self._fails and value[2] == f"l0:{LIMIT + 5}" and not os.path.exists(self._mark):
            Path(self._mark).touch()
            raise ConnectionError("once")
        return value


class Total(KeyedProcessFunction[Any, Any, tuple[Any, int]]):
    """Counts the rows of each key."""

    _count: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[tuple[Any, int]]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        ctx.timer_service().register_processing_time_timer(9_000_000_000_000)
        yield (ctx.get_current_key(), count)


def number_of(row: Any) -> int:
    return int(row[0][1:])


def text_of(row: Any) -> str:
    return str(number_of(row))


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 3}
    with mini_cluster(task_executors=1, slots=3, configuration=fixed) as running:
        yield running


def submitted(
    cluster: MiniCluster,
    folder: Path,
    backend: str,
    key_of: Callable[[Any], Any] = number_of,
    key_type: TypeInformation | None = None,
    parallelism: int = 2,
    path: str = "",
    fails: bool = False,
    **settings: str,
) -> LocalJobClient:
    keys = {
        "state.backend.type": backend,
        "restart-strategy.type": "fixed-delay" if fails else "none",
        "restart-strategy.fixed-delay.delay": "0 s",
        "execution.checkpointing.interval": "100 ms",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        **({"execution.state-recovery.path": path} if path else {}),
        **{key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()},
    }
    env = cluster.get_execution_environment(keys).set_parallelism(parallelism)
    source = StepSource("l", str(folder), SPLITS, ROWS)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    rows = rows.map(FailsOnce(str(folder), fails)).uid("fails")
    totals = rows.key_by(key_of, key_type).process(Total()).uid("total").name("Totals")
    told = str(folder / "told")

    def write(total: tuple[Any, int]) -> tuple[Any, int]:
        with open(told, "a") as file:
            file.write(json.dumps(total) + "\n")
        return total

    totals.map(write).uid("write").print()
    return cluster.submit(env.get_job_graph("totals"))


def counts(limit: int, key_of: Callable[[Any], Any]) -> Counter[Any]:
    return Counter(map(key_of, rows_until(limit)))


def stopped(cluster: MiniCluster, folder: Path, backend: str, key_type: TypeInformation | None) -> str:
    """A savepoint of the rows before the gate."""
    allow(folder, LIMIT)
    client = submitted(cluster, folder, backend, key_type=key_type)
    wait_until(lambda: is_running(client))
    wait_at(folder, LIMIT, has_rules=False)
    path = client.stop_with_savepoint(False, f"{folder}/savepoints").result()
    (folder / "told").unlink()
    with SavepointReader.read(path) as reader:
        table = reader.read_keyed_state("total", "count").to_pylist()
        (key_of_total,) = {each.key_type for each in reader.operators() if each.uid == "total"}
    assert {row["key"]: row["value"] for row in table} == counts(LIMIT, number_of)
    assert key_of_total == key_type
    return path


def finished(client: LocalJobClient, folder: Path, key_of: Callable[[Any], Any]) -> None:
    """Of each key every count beyond those of the savepoint is told once."""
    client.get_job_execution_result().result()
    told = Counter(tuple(json.loads(line)) for line in (folder / "told").read_text().splitlines())
    (folder / "told").unlink()
    before, after = counts(LIMIT, key_of), counts(ROWS, key_of)
    assert told == Counter((key, count) for key in after for count in range(before[key] + 1, after[key] + 1))


def as_texts(table: Any) -> Any:
    return table.set_column(table.column_names.index("key"), "key", table["key"].cast(pa.string()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_of_another_type_are_refused_and_no_others(
    cluster: MiniCluster, tmp_path: Path, backend: str
) -> None:
    path = stopped(cluster, tmp_path, backend, Types.INT())
    jobs = len(cluster.running_jobs())
    match = r"operator 'Totals'.*'count'.*keys of type Integer.*are of type String.*state_processor.*run -n"
    for dropped in ("false", "true"):
        unclaimed = {"execution__state_recovery__ignore_unclaimed_state": dropped}
        with pytest.raises(RestoreError, match=match):
            submitted(cluster, tmp_path, backend, text_of, Types.STRING(), 2, path, False, **unclaimed)
    assert len(cluster.running_jobs()) == jobs
    allow(tmp_path, ROWS)
    other = BACKENDS[1 - BACKENDS.index(backend)]
    for key_type, reader, parallelism in (
        (Types.INT(), other, 3),
        (Types.LONG(), backend, 1),
        (None, backend, 2),
    ):
        client = submitted(cluster, tmp_path, reader, number_of, key_type, parallelism, path)
        finished(client, tmp_path, number_of)
    # Rewritten by the state processor, it is what the changed program asks for.
    writer = SavepointWriter.from_existing_savepoint(path)
    writer.transform_state("total", "count", as_texts, key_type=Types.STRING())
    writer.transform_timers("total", as_texts, key_type=Types.STRING())
    changed = writer.write(f"{tmp_path}/changed")
    client = submitted(cluster, tmp_path, backend, text_of, Types.STRING(), path=changed)
    finished(client, tmp_path, text_of)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("key_type", [Types.INT(), Types.STRING()], ids=["right", "wrong"])
def test_a_job_goes_on_from_its_own_checkpoints_whatever_it_declares(
    cluster: MiniCluster, tmp_path: Path, backend: str, key_type: TypeInformation
) -> None:
    """Its keys are numbers: a type that they do not bear out is not written."""
    allow(tmp_path, LIMIT)
    client = submitted(cluster, tmp_path, backend, number_of, key_type, fails=True)
    wait_at(tmp_path, LIMIT, has_rules=False)

    def completed() -> float:
        found = client.get_job_details().result().checkpoint_metrics
        return found.get("numberOfCompletedCheckpoints", 0)

    before = completed()
    wait_until(lambda: completed() >= before + 2)  # the second began when all rows before the gate had passed
    (tmp_path / "told").unlink()
    allow(tmp_path, ROWS)
    client.get_job_execution_result().result()
    assert (tmp_path / "failed").exists()
    told = [tuple(json.loads(line)) for line in (tmp_path / "told").read_text().splitlines()]
    assert {key: max(n for other, n in told if other == key) for key, _ in told} == counts(ROWS, number_of)
    assert min(count for _, count in told) > min(counts(LIMIT, number_of).values())


PROGRAM = """
import sys
from yarrow.common import Types
from yarrow.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
rows = env.from_collection([("a", 1)]).uid("rows")
kind = {"text": Types.STRING(), "number": Types.LONG(), "none": None}[sys.argv[1]]
rows.key_by(lambda row: row[0], kind).sum(1).uid("total").name("Totals").print()
env.execute("totals")
"""


def test_check_savepoint_says_it_before(tmp_path: Path) -> None:
    made = OperatorTransformation.bootstrap_with([("a", 5)]).key_by(lambda row: row[0], Types.STRING())
    totals = made.to_state(ValueStateDescriptor("aggregate", Types.LONG()), lambda row: row[1])
    path = SavepointWriter.new_savepoint(128).with_operator("total", totals).write(f"{tmp_path}/made")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def checked(kind: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "yarrow.cli.main", "check-savepoint", str(program), path, kind],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )

    refused = checked("number")
    assert refused.returncode == 1, refused.stderr
    assert "keys of String" in refused.stdout
    for part in ("operator 'Totals'", "keys of type String", "Long", "yarrow.state_processor", "run -n"):
        assert part in refused.stdout
    for kind in ("text", "none"):
        assert checked(kind).returncode == 0
