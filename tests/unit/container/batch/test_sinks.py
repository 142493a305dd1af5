"""Sinks of batch jobs: committables leave as a result, of one attempt of each task, and are committed together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.batch_runner import BatchRun, run_batch
from tests.unit.container.operators.sinks.sinks_under_test import Outside, RowFiles, Transactions
from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.commits import commit, remove_leftovers, sinks_of
from yarrow.container.operators.sinks.sink_committing import CommitFailedError
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.datastream.connectors.base import Committer, Sink, SinkWriter, SinkWriterContext
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph

NUMBERS = [str(number) for number in range(100)]


@pytest.fixture(params=[Transactions, RowFiles])
def outside(request: pytest.FixtureRequest, tmp_path: Path) -> Outside:
    made: Outside = request.param(tmp_path / "out")
    return made


def graph_into(sink: Sink[Any], values: list[str] = NUMBERS) -> JobGraph:
    env = environment()
    env.from_collection(values).rebalance().filter(lambda text: int(text) >= 0).sink_to(sink).name("out")
    return env.get_job_graph()


def commit_all(run: BatchRun) -> int:
    (sink,) = sinks_of(run.graph)
    operator = run.graph.vertex(sink.vertex_id).operators[sink.operator].id
    return commit(run.graph, sink, run.committables[operator], Settings(), ManualClock())


def end(graph: JobGraph, folder: Path) -> None:
    for sink in sinks_of(graph):
        remove_leftovers(graph, sink, Settings(), ManualClock(), folder)


def test_rows_are_visible_with_the_commit(outside: Outside, tmp_path: Path) -> None:
    run = run_batch(graph_into(outside.sink))
    assert outside.rows() == []
    assert commit_all(run) >= 2
    assert sorted(outside.rows(), key=int) == NUMBERS
    commit_all(run)
    end(run.graph, tmp_path)
    assert sorted(outside.rows(), key=int) == NUMBERS
    assert outside.leftovers() == []


def test_attempts_that_were_not_taken_leave_nothing(outside: Outside, tmp_path: Path) -> None:
    graph = graph_into(outside.sink)
    taken = run_batch(graph)
    # A speculative attempt begins and ends later: it must not touch what the first one has prepared.
    run_batch(graph, attempt=1)
    assert outside.leftovers() != []
    commit_all(taken)
    end(graph, tmp_path)
    assert sorted(outside.rows(), key=int) == NUMBERS
    assert outside.leftovers() == []


def test_a_failed_job_leaves_nothing(outside: Outside, tmp_path: Path) -> None:
    graph = graph_into(outside.sink, [*NUMBERS, "no number"])
    with pytest.raises(OperatorFailure):
        run_batch(graph, {"execution.batch.max-rows": "10"})
    run_batch(graph_into(outside.sink))
    end(graph, tmp_path)
    assert outside.rows() == []


def test_what_a_task_has_prepared_leaves_in_parts(tmp_path: Path) -> None:
    values = ["1" * (1 << 20), "2" * (3 << 20), "3"]
    env = environment()
    env.from_collection(values).rebalance().sink_to(Refusing(tmp_path, 0)).name("out")
    graph = env.get_job_graph()
    most: list[int] = []
    whole = run_batch(graph, watch=lambda chunk: most.append(len(chunk.payload)))
    (sink,) = sinks_of(graph)
    (payloads,) = whole.committables.values()
    # Rows come in chunks of their own size; what is prepared is larger than any of them.
    assert sum(map(len, payloads)) > 4 << 20
    assert max(most) <= 1 << 20
    assert commit(graph, sink, payloads, Settings(), ManualClock()) == 2
    assert sorted((tmp_path / "committed").read_text().split()) == values


def test_other_jobs_transactions_stay(outside: Outside, tmp_path: Path) -> None:
    mine, other = graph_into(outside.sink), graph_into(outside.sink)
    assert mine.job_id == other.job_id

    other = msgspec.structs.replace(other, job_id="f" * 32)
    run_batch(mine)
    kept = run_batch(other)
    end(mine, tmp_path)
    commit_all(kept)
    assert sorted(outside.rows(), key=int) == NUMBERS


class Refusing(Sink[Any]):
    """Its commits fail `times` times."""

    def __init__(self, folder: Path, times: int) -> None:
        self.folder = folder
        self.times = times

    def create_writer(self, context: SinkWriterContext, restored: Any = ()) -> SinkWriter[Any]:
        return Keeping()

    def create_committer(self) -> Committer:
        return RefusingCommitter(self.folder, self.times)


class Keeping(SinkWriter[Any]):
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, rows: Any, timestamps: Any) -> None:
        self.rows += rows

    def prepare_commit(self) -> list[Any]:
        return [self.rows]


class RefusingCommitter(Committer):
    def __init__(self, folder: Path, times: int) -> None:
        self.folder = folder
        self.left = times

    def commit(self, committables: Any) -> None:
        if self.left:
            self.left -= 1
            raise ConnectionError("not now")
        with (self.folder / "committed").open("a") as file:
            file.writelines(f"{row}\n" for rows in committables for row in rows)


@pytest.mark.parametrize("times", [2, 1000])
def test_failed_commits_are_tried_again(tmp_path: Path, times: int) -> None:
    run = run_batch(graph_into(Refusing(tmp_path, times), ["1", "2"]))
    (sink,) = sinks_of(run.graph)
    clock, waits = ManualClock(), []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    (payloads,) = run.committables.values()
    if times == 2:
        assert commit(run.graph, sink, payloads, Settings(), clock, wait) == 2
        assert len(waits) == 2
        assert sorted((tmp_path / "committed").read_text().split()) == ["1", "2"]
    else:
        with pytest.raises(CommitFailedError, match=r"'.*out.*' cannot commit"):
            commit(run.graph, sink, payloads, Settings(), clock, wait)
        assert not (tmp_path / "committed").exists()
