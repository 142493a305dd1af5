"""A savepoint under a program whose operator is of another kind: refused before it runs, or dropped by request."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.savepoints.all_kinds import (
    ROWS,
    SPLITS,
    StepSource,
    allow,
    is_running,
    rows_until,
    wait_at,
)
from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, MapFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import RestoreError

pytestmark = pytest.mark.cluster

#: Rows of each split that had passed.
LIMIT = 25


def key_of(row: Any) -> Any:
    return row[0]


class FailsOnce(MapFunction[Any, Any]):
    """At the first row."""

    def __init__(self, mark: str) -> None:
        self._mark = mark

    def map(self, value: Any) -> Any:
        if not os.path.exists(self._mark):
            Path(self._mark).touch()
            raise ConnectionError("once")
        return value


class Counts(KeyedProcessFunction[Any, Any, str]):
    """Emits how many rows each key has had, as a line of JSON."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._count: ValueState[Any] = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[str]:
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield json.dumps([ctx.get_current_key(), count])


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    # A slot of the former job may still be ending: no TaskExecutor is started in its place.
    fixed = {"slotmanager.number-of-slots.max": 2}
    with mini_cluster(task_executors=1, slots=2, configuration=fixed) as running:
        yield running


def submitted(
    cluster: MiniCluster, folder: Path, path: str = "", *, windows: bool, **settings: str
) -> LocalJobClient:
    """`windows`: windows that never become full stand under the uid "by key", in place of a function."""
    keys = {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 s",
        "execution.checkpointing.dir": f"{folder}/checkpoints",
        **({"execution.state-recovery.path": path} if path else {}),
        **settings,
    }
    env = cluster.get_execution_environment(keys).set_parallelism(1)
    # No checkpoint completes before the failure: the restart begins from the savepoint once more.
    env.enable_checkpointing(3_600_000)
    source = StepSource("l", str(folder), SPLITS, ROWS)
    rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows").uid("rows")
    if windows:
        made = rows.key_by(key_of).count_window(100 * ROWS).reduce(lambda left, right: left)
    else:
        rows = rows.map(FailsOnce(f"{folder}/failed")).uid("fails")
        made = rows.key_by(key_of).process(Counts())
    told = str(folder / "told")

    def write(line: Any) -> Any:
        with open(told, "a") as file:
            file.write(f"{line}\n")
        return line

    made.uid("by key").name("By Key").map(write).uid("write").print()
    return cluster.submit(env.get_job_graph("kinds"))


def test_the_state_of_windows_is_refused_under_a_function_or_dropped(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    allow(tmp_path, LIMIT)
    client = submitted(cluster, tmp_path, windows=True)
    wait_until(lambda: is_running(client))
    wait_at(tmp_path, LIMIT, has_rules=False)
    path = client.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
    jobs = len(cluster.running_jobs())
    said = r"operator 'By Key' \(uid 'by key'\): .* the state of windows, the program declares a function\."
    with pytest.raises(RestoreError, match=said):
        submitted(cluster, tmp_path, path, windows=False)
    assert len(cluster.running_jobs()) == jobs
    allow(tmp_path, ROWS)
    dropped = {"execution.state-recovery.ignore-unclaimed-state": "true"}
    client = submitted(cluster, tmp_path, path, windows=False, **dropped)
    client.get_job_execution_result().result()
    # The source went on, also behind the restart, and the function began anew.
    told = Counter(tuple(json.loads(line)) for line in (tmp_path / "told").read_text().splitlines())
    behind = Counter(map(key_of, rows_until(ROWS))) - Counter(map(key_of, rows_until(LIMIT)))
    assert told == Counter((key, count) for key, rows in behind.items() for count in range(1, rows + 1))
