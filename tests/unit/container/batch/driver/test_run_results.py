"""Results of a run: in messages of bounded length, and once, however often Spark runs the task that sends them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.job_graphs import Stage, linear_job
from yarrow.container.batch.chunk import (
    COLLECTED,
    COMMITTABLES,
    FINISHED,
    PRINTED,
    TaskResult,
    encode_task_result,
)
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.run_results import RunResults, joined
from yarrow.container.batch.driver.shared_job import SOCKET, SharedJob
from yarrow.container.batch.driver.stage_progress import StageProgress
from yarrow.container.batch.driver.task_messages import (
    AttemptEnded,
    AttemptStarted,
    FromTask,
    ResultChunk,
    ResultsEnded,
    ResultsStarted,
)
from yarrow.container.batch.spark.task_server import (
    AttemptListener,
    EntranceOnThisHost,
    ResultsListener,
    TaskServer,
)
from yarrow.container.network.unix_sockets import connect_unix
from yarrow.container.protocol.framing import encode_frame
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchCommittables,
    BatchOutput,
    BatchSubtaskResult,
    CollectConfirmation,
    CollectRows,
)

GRAPH = linear_job(Stage(2), Stage(2, operator=CollectOperator(collect_id="rows")))
PLAN = plan(GRAPH)
LIMIT = 60.0


class Master:
    """Notes what the driver sends; `hold` keeps it waiting."""

    def __init__(self) -> None:
        self.rows: list[CollectRows] = []
        self.text: list[BatchOutput] = []
        self.committables: list[BatchCommittables] = []
        self.subtasks: list[tuple[BatchSubtaskResult, ...]] = []
        self.go_on = threading.Event()
        self.go_on.set()
        self.waits = threading.Event()

    async def push_collected(self, rows: CollectRows) -> CollectConfirmation:
        self.waits.set()
        await asyncio.to_thread(self.go_on.wait, LIMIT)
        self.rows.append(rows)
        return CollectConfirmation()

    async def push_output(self, output: BatchOutput) -> Acknowledge:
        self.text.append(output)
        return Acknowledge()

    async def store_committables(self, committables: BatchCommittables) -> Acknowledge:
        self.committables.append(committables)
        return Acknowledge()

    async def report_subtasks(
        self, job_id: object, run: int, subtasks: tuple[BatchSubtaskResult, ...]
    ) -> Acknowledge:
        self.subtasks.append(subtasks)
        return Acknowledge()


def results(master: Master, part_bytes: int = 1000) -> RunResults:
    def wait_for(call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(call)

    return RunResults(0, GRAPH, PLAN, cast(Any, master), wait_for, part_bytes)


def chunk(edge: int, payload: bytes, rows: int = 1, subtask: int = 0, sequence: int = 0) -> ResultChunk:
    return ResultChunk(
        stage=1,
        attempt=0,
        edge=edge,
        target=0,
        producer=subtask,
        sequence=sequence,
        rows=rows,
        payload=payload,
    )


def finished(subtask: int, accumulators: dict[str, Any] | None = None) -> ResultChunk:
    return chunk(FINISHED, encode_task_result(TaskResult(accumulators=accumulators or {})), 0, subtask)


#: Text, rows in three messages, one of which has two chunks, and committables of two subtasks.
ALL = [
    each
    for subtask in (0, 1)
    for each in (
        chunk(PRINTED, b"one\n", 1, subtask),
        chunk(COLLECTED, b"ab", 2, subtask),
        chunk(COLLECTED, b"c", 0, subtask),
        chunk(COLLECTED, b"C", 1, subtask),
        chunk(PRINTED, b"two\n", 1, subtask),
        chunk(COLLECTED, b"d", 1, subtask),
        chunk(COMMITTABLES, b"some", 0, subtask),
        chunk(COMMITTABLES, b"thing", 3, subtask),
        finished(subtask),
    )
]


def check(master: Master, of: RunResults) -> None:
    """Everything of ALL has come once."""
    rows = [each for each in master.rows if each.row_count]
    assert [(each.subtask, each.payload, each.first) for each in rows] == [
        (subtask, payload, first)
        for subtask in (0, 1)
        for payload, first in ((b"ab", 0), (b"cC", 2), (b"d", 3))
    ]
    assert [each.subtask for each in master.rows if each.last] == [0, 1]
    for subtask in (0, 1):
        sequences = [each.sequence for each in master.rows if each.subtask == subtask]
        assert sequences == sorted(set(sequences))
    assert [(each.subtask, each.first, each.text) for each in master.text] == [
        (subtask, first, text) for subtask in (0, 1) for first, text in ((0, "one\n"), (4, "two\n"))
    ]
    assert list(joined(of.committables)) == [b"something"] * 2
    assert [(each.subtask, each.payload) for each in master.committables] == [
        (0, b"something"),
        (1, b"something"),
    ]
    of.flush()
    assert [each.subtask for several in master.subtasks for each in several] == [0, 1]


def test_what_is_longer_than_a_message_goes_in_parts() -> None:
    master = Master()
    part = results(master, part_bytes=40)
    reading = part.begin()
    prepared = bytes(range(100))
    for each in (
        chunk(COMMITTABLES, prepared[:50], 0),
        chunk(COMMITTABLES, prepared[50:], 7),
        chunk(PRINTED, "ä€".encode() * 15),
        chunk(COLLECTED, prepared, 1),
    ):
        reading.take(each)
    assert [(each.sequence, len(each.payload), each.continued) for each in master.committables] == [
        (0, 40, True),
        (1, 40, True),
        (2, 20, False),
    ]
    assert b"".join(each.payload for each in master.committables) == prepared
    assert list(joined(part.committables)) == [prepared]
    assert "".join(each.text for each in master.text) == "ä€" * 15
    assert all(len(each.text.encode()) <= 40 for each in master.text)
    assert [(len(each.payload), each.row_count, each.continued) for each in master.rows] == [
        (40, 0, True),
        (40, 0, True),
        (20, 1, False),
    ]


def test_results_of_subtasks_with_much_in_them_go_in_several_messages() -> None:
    master = Master()
    some = results(master, part_bytes=400)
    reading = some.begin()
    for subtask in (0, 1):
        reading.take(finished(subtask, {"text": "x" * 300}))
    some.flush()
    assert [len(several) for several in master.subtasks] == [1, 1]


@pytest.mark.parametrize("sent", range(len(ALL) + 1))
def test_results_that_begin_anew_are_passed_on_once(sent: int) -> None:
    master = Master()
    some = results(master)
    first = some.begin()
    for each in ALL[:sent]:
        first.take(each)
    second = some.begin()
    for each in ALL:
        second.take(each)
    assert not some.has_all(len(ALL))
    second.end()
    assert some.has_all(len(ALL))
    check(master, some)


class Listener:
    """Passes results on to one RunResults."""

    def __init__(self, taken: RunResults) -> None:
        self._taken = taken

    def results_started(self, started: ResultsStarted) -> ResultsListener:
        return self._taken.begin()

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"only results come, but {name} was called")


def connection(folder: Path, attempt: int) -> socket.socket:
    made = connect_unix(str(folder / SOCKET))
    send(made, [ResultsStarted(run=0, attempt=attempt)])
    return made


NO_JOB = SharedJob(
    run=0,
    job_graph=b"",
    plan=b"",
    configuration={},
    task_folder="",
    file_paths={},
    splits={},
    result_key=b"",
)


def send(to: socket.socket, messages: Sequence[FromTask]) -> None:
    to.sendall(b"".join(map(encode_frame, messages)))


@pytest.fixture
def server_of(tmp_path: Path) -> Iterator[Any]:
    opened: list[TaskServer] = []

    def serve(taken: RunResults) -> Path:
        opened.append(
            TaskServer(
                EntranceOnThisHost(tmp_path, NO_JOB), cast(AttemptListener, Listener(taken)), NewestTokens()
            )
        )
        opened[0].start()
        return tmp_path

    yield serve
    opened[0].close()


def test_two_attempts_at_a_time_pass_everything_on_once(server_of: Any) -> None:
    """As if spark.speculation ran the last task twice: the copy begins in the middle, and the first one is killed."""
    master = Master()
    some = results(master)
    folder = server_of(some)
    master.go_on.clear()
    first = connection(folder, 0)
    send(first, ALL[:8])
    assert master.waits.wait(LIMIT)
    # The first attempt waits for the master while the second one sends everything.
    second = connection(folder, 1)
    send(second, [*ALL, ResultsEnded()])
    master.go_on.set()
    send(first, ALL[8:12])
    first.close()
    for _ in range(int(LIMIT * 100)):
        if some.has_all(len(ALL)):
            break
        threading.Event().wait(0.01)
    second.close()
    check(master, some)


def test_an_attempt_that_spark_ends_beside_another_takes_nothing_back() -> None:
    progress = StageProgress(PLAN)
    slow, fast = (AttemptStarted(run=0, stage=1, subtask=0, attempt=number, pid=1) for number in (0, 1))
    progress.started(slow, 1)
    progress.started(fast, 2)
    progress.progressed(fast, AttemptEnded(records_in=3, records_out=0), 3)
    progress.failed(slow)
    stage = progress.all()[1]
    assert (stage.tasks_done, stage.tasks_running, stage.tasks_failed) == (1, 0, 0)
    # A copy may begin so late that its original has ended.
    progress.started(slow, 4)
    progress.failed(slow)
    assert progress.all()[1].tasks_done == 1
    assert progress.has_ended(slow)


def test_an_attempt_runs_before_it_tells_of_records() -> None:
    """A function may take long for its first record."""
    progress = StageProgress(PLAN)
    progress.started(AttemptStarted(run=0, stage=1, subtask=0, attempt=0, pid=1), 1)
    (subtask,) = progress.all()[1].subtasks
    assert (subtask.subtask, subtask.is_done, subtask.records_in, subtask.records_out) == (0, False, 0, 0)
    assert not progress.all()[0].subtasks
