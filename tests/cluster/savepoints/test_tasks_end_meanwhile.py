"""A task ends while a checkpoint is under way: its trigger comes too late, and the checkpoint counts it as ended."""

from __future__ import annotations

import asyncio
import json
import pickle
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.embedded.test_savepoints import until_running
from tests.cluster.embedded.waiting import wait_until
from yarrow.am.checkpoint.events import TriggerTasks
from yarrow.am.jobmaster.checkpoints.checkpoint_messages import CheckpointMessages
from yarrow.common import JobStatus
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
)
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.scripted_source import Gate, ScriptedSource, ScriptReader, ScriptSplit
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.cluster

BRIEF, LONG = "brief", "long"
#: The rows of the source that ends meanwhile, and of the other one before and behind its gate.
ENDING = [("brief", number) for number in range(40)]
BEFORE = [("long", number) for number in range(40)]
BEHIND = [("long", number) for number in range(40, 80)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=2, slots=2) as running:
        yield running


class Unawaited(ScriptReader):
    """Knows before its rows that it has the last split, and hears of no checkpoint: so it needs none to end."""

    def open_split(self, split: ScriptSplit) -> None:
        super().open_split(split)
        self._context.request_split()

    def read_split(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        return super().read_split(max_rows) if self._no_more_splits else NothingAvailable(0.01)

    notify_checkpoint_complete = SourceReader.notify_checkpoint_complete


class Brief(ScriptedSource):
    """Ends without a checkpoint."""

    def create_reader(self, context: SourceReaderContext) -> ScriptReader:
        return Unawaited(context, pickle.loads(self._script), self)


class Race:
    """Lets the brief source end when a checkpoint triggers it, and sends it the trigger after its end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.brief = Brief([*ENDING, Gate("end")], folder / BRIEF)
        self.long = ScriptedSource([*BEFORE, Gate("more"), *BEHIND, Gate("end")], folder / LONG)
        self.raced: list[int] = []
        self._send: Callable[[CheckpointMessages, TriggerTasks], None] = CheckpointMessages.trigger_tasks
        self._monkeypatch = monkeypatch

    def begin(self, cluster: MiniCluster, client: LocalJobClient) -> None:
        """The next checkpoint meets the end of the brief source."""
        for source, gate in ((self.brief, "end"), (self.long, "more")):
            wait_until(lambda source=source, gate=gate: source.has_reached(gate))  # type: ignore[misc]
        until_running(cluster, client)

        def late(messages: CheckpointMessages, action: TriggerTasks) -> None:
            self._trigger_tasks_late(messages, action)

        self._monkeypatch.setattr(CheckpointMessages, "trigger_tasks", late)

    def _trigger_tasks_late(self, messages: CheckpointMessages, action: TriggerTasks) -> None:
        executions = [messages._graph.execution(attempt) for attempt in action.attempts]
        late = tuple(
            each.attempt_id
            for each in executions
            if each is not None and BRIEF in each.vertex.name and each.state is ExecutionState.RUNNING
        )
        others = tuple(attempt for attempt in action.attempts if attempt not in late)
        if others:
            self._send(messages, msgspec.structs.replace(action, attempts=others))
        if late:
            self.raced.append(action.checkpoint_id)
            self.brief.open_gate("end")
            # Worker and JobMaster exchange messages about the end meanwhile.
            self._send_behind_end(messages, msgspec.structs.replace(action, attempts=late))

    def _send_behind_end(self, messages: CheckpointMessages, action: TriggerTasks) -> None:
        execution = messages._graph.execution(action.attempts[0])
        if execution is not None and execution.state is ExecutionState.RUNNING:
            asyncio.get_running_loop().call_later(0.01, self._send_behind_end, messages, action)
            return
        self._send(messages, action)


def submitted(cluster: MiniCluster, race: Race, output: Path, **settings: str) -> LocalJobClient:
    keys = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    env = cluster.get_execution_environment(keys).set_parallelism(2)
    if not settings:
        env.enable_checkpointing(3_600_000)

    def read(source: Source[Any, Any], name: str) -> Any:
        made = env.from_source(source, WatermarkStrategy.no_watermarks(), name).set_parallelism(1)
        return made.uid(name)

    # A vertex that one source alone feeds, and one that both feed.
    brief = read(race.brief, BRIEF).rebalance().map(lambda row: row).uid("behind")
    both = brief.union(read(race.long, LONG)).key_by(lambda row: row[1] % 7)
    counted = both.reduce(lambda one, other: other).uid("latest")
    counted.sink_to(TransactionalFiles(str(output))).uid("sink")
    return cluster.submit(env.get_job_graph("ends meanwhile"))


def counts(cluster: MiniCluster, client: LocalJobClient) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.web_address}/jobs/{client.get_job_id()}/checkpoints") as answer:
        found: dict[str, Any] = json.load(answer)["counts"]
        return found


def rows(output: Path) -> list[Any]:
    return sorted(CommittedFiles(output).rows())


@pytest.mark.parametrize("drain", [False, True], ids=["suspended", "drained"])
def test_a_stop_while_a_source_ends(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drain: bool
) -> None:
    race = Race(monkeypatch, tmp_path)
    client = submitted(cluster, race, tmp_path / "out")
    race.begin(cluster, client)
    path = client.stop_with_savepoint(drain, str(tmp_path / "sp")).result()
    client.get_job_execution_result().result()
    assert len(race.raced) == 1, "the first savepoint is the one that the client gets"
    assert rows(tmp_path / "out") == sorted([*ENDING, *BEFORE])
    if drain:
        return
    race.long.open_gate("more")
    race.long.open_gate("end")
    following = submitted(cluster, race, tmp_path / "out", execution__state_recovery__path=path)
    following.get_job_execution_result().result()
    assert rows(tmp_path / "out") == sorted([*ENDING, *BEFORE, *BEHIND])


def test_a_savepoint_while_a_source_ends(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Race(monkeypatch, tmp_path)
    client = submitted(cluster, race, tmp_path / "out")
    race.begin(cluster, client)
    path = client.trigger_savepoint(str(tmp_path / "sp")).result()
    assert len(race.raced) == 1 and client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result()
    race.long.open_gate("more")
    race.long.open_gate("end")
    other = submitted(cluster, race, tmp_path / "out", execution__state_recovery__path=path)
    other.get_job_execution_result().result()
    assert rows(tmp_path / "out") == sorted([*ENDING, *BEFORE, *BEHIND])


@pytest.mark.parametrize("unaligned", ["false", "true"])
def test_a_checkpoint_of_the_interval_while_a_source_ends(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unaligned: str
) -> None:
    race = Race(monkeypatch, tmp_path)
    client = submitted(
        cluster,
        race,
        tmp_path / "out",
        execution__checkpointing__interval="200 ms",
        execution__checkpointing__unaligned__enabled=unaligned,
    )
    race.begin(cluster, client)
    wait_until(lambda: bool(race.raced))
    before = counts(cluster, client)["completed"]
    wait_until(lambda: counts(cluster, client)["completed"] > before + 1)
    assert counts(cluster, client)["failed"] == 0
    race.long.open_gate("more")
    race.long.open_gate("end")
    client.get_job_execution_result().result()
    assert rows(tmp_path / "out") == sorted([*ENDING, *BEFORE, *BEHIND])
