"""Rows of execute_and_collect: operator, buffer and client together, through restarts and other parallelisms."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.am.jobmaster.collect import CollectBuffer
from yarrow.container.operators.base import (
    NOTHING_RESTORED,
    CollectMessage,
    OperatorContext,
    RestoredState,
    TaskEnvironment,
)
from yarrow.container.operators.collecting import AWAITS, CollectingOperator
from yarrow.container.task.metric_registry import MetricRegistry
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import CollectOperator
from yarrow.runtime.rpc.messages import CollectRows
from yarrow.runtime.snapshot.handles import OperatorState, OperatorSubtaskState
from yarrow.runtime.snapshot.options import SnapshotKind
from yarrow.runtime.snapshot.redistribution import operator_handles
from yarrow.testing.collected_rows import CollectedRows

JOB, OPERATOR = JobID("1" * 32), OperatorID("2" * 32)


def now(question: Coroutine[Any, Any, Any]) -> Any:
    """The answer of one that need not wait."""
    try:
        question.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("it waits")


@dataclass
class Checkpoint:
    number: int
    position: int
    states: dict[int, OperatorSubtaskState]
    parallelism: int
    #: Subtasks whose input had ended.
    ended: frozenset[int] = field(default_factory=frozenset)


class Job:
    """Subtasks of a collect operator that read a log by turns; what they send waits until `deliver`.

    One whose input has ended is done when its operator is drained: checkpoints do not hold it from then on.
    """

    def __init__(
        self,
        parallelism: int = 1,
        *,
        exactly_once: bool = True,
        savepoint: Checkpoint | None = None,
        collect_id: str = "c",
    ) -> None:
        self.exactly_once = exactly_once
        self.collect_id = collect_id
        self.masters = 0
        self.parallelism = parallelism
        self.complete = savepoint
        self.elect()
        self.client = CollectedRows()
        self.got: list[Any] = []
        self.ended = False
        self.attempt = -1
        self.number = savepoint.number if savepoint else 0
        self.start(parallelism)

    def elect(self) -> None:
        """A master begins, with nothing of what the former one had."""
        self.masters += 1
        version = f"master-{self.masters}"
        self.buffer = CollectBuffer(
            JOB,
            self.collect_id,
            self.parallelism,
            1 << 30,
            version=version,
            exactly_once=self.exactly_once,
            checkpoint_id=self.complete.number if self.complete else -1,
        )

    def new_master(self, parallelism: int | None = None) -> None:
        """The master dies; the next one starts all tasks from the last complete checkpoint.

        It knows the job as it was submitted, not what a rescale has made of it.
        """
        self.parallelism = parallelism or self.parallelism
        self.elect()
        self.start(self.parallelism)

    def start(self, parallelism: int) -> None:
        """From the last complete checkpoint, at this parallelism; what was on its way arrives later, or never."""
        self.attempt += 1
        self.parallelism = parallelism
        self.on_their_way: list[tuple[int, CollectMessage, ExecutionAttemptID]] = []
        self.questions: dict[int, CollectRows] = {}
        self.position = self.complete.position if self.complete else 0
        self.taken: list[Checkpoint] = []
        self.ending: set[int] = set()
        self.done: set[int] = set()
        states = [OperatorSubtaskState()] * parallelism
        if (complete := self.complete) is not None:
            states = _divided(complete, parallelism)
            if complete.parallelism == parallelism or len(complete.ended) == complete.parallelism:
                all_ended = complete.parallelism != parallelism
                self.ending = set(range(parallelism)) if all_ended else set(complete.ended)
        number = complete.number if complete else -1
        self.subtasks = [
            self._operator(
                index, RestoredState(number, {OPERATOR: state}, read_inline) if number >= 0 else None
            )
            for index, state in enumerate(states)
        ]
        self._look()

    def _operator(self, subtask: int, restored: RestoredState | None) -> CollectingOperator:
        clock = ManualClock(0)
        attempt = ExecutionAttemptID(f"{self.attempt}-{subtask}")
        environment = TaskEnvironment(
            job_id=JOB,
            job_name="job",
            attempt_id=attempt,
            task_name="Collect",
            subtask=subtask,
            parallelism=self.parallelism,
            max_parallelism=128,
            attempt_number=self.attempt,
            configuration={},
            clock=clock,
            metrics=MetricRegistry(clock),
            accumulators={},
            object_reuse=False,
            wake=lambda: None,
            post=lambda mail: mail(),
            write_output=lambda text: None,
            send_operator_event=lambda *event: None,
            push_collected=lambda message: self.on_their_way.append((subtask, message, attempt)),
            settings=Settings({"execution.checkpointing.interval": "1 s"}, "the test"),
            local_directory="",
            restored=restored or NOTHING_RESTORED,
        )
        spec = CollectOperator(collect_id=self.collect_id)
        operator = CollectingOperator("Collect", spec)
        operator.setup(
            OperatorContext.of(environment, OperatorDescriptor(id=OPERATOR, name="Collect", spec=spec))
        )
        if subtask not in self.ending:
            operator.open()
        elif restored is not None and restored.of(OPERATOR).operator:
            operator.resume_finished()
        else:
            self.done.add(subtask)
        return operator

    def read(self, rows: int) -> None:
        reading = [index for index in range(self.parallelism) if index not in self.ending]
        for _ in range(rows if reading else 0):
            self.subtasks[reading[self.position % len(reading)]].take_rows([self.position], None)
            self.position += 1

    def end(self, subtask: int) -> None:
        """Its input has ended."""
        if subtask not in self.ending and subtask < self.parallelism:
            self.ending.add(subtask)
            self.subtasks[subtask].finish()
            self._look()

    def _look(self) -> None:
        """As the task does at the end of its input, and the master with its question."""
        for index in sorted(self.ending - self.done):
            operator = self.subtasks[index]
            if index in self.questions and self.buffer.may_end(self.questions[index]):
                operator.on_credit(AWAITS, {})
            if operator.is_drained:
                self.done.add(index)
            elif operator.only_awaits_client:
                operator.await_client()

    def deliver(self, count: int = 1000, *, credit: bool = True) -> None:
        """`credit` False: it arrives, but the answer does not."""
        for _ in range(count):
            if not self.on_their_way:
                return
            subtask, message, attempt = self.on_their_way.pop(0)
            rows = CollectRows(
                job_id=JOB,
                subtask=subtask,
                attempt_number=self.attempt,
                attempt_id=attempt,
                **message._asdict(),
            )
            if message.awaits:
                self.questions[subtask] = rows
            else:
                confirmation = now(self.buffer.push(rows))
                if credit:
                    self.subtasks[subtask].on_credit(message.sequence, confirmation.positions)
            self._look()

    def lose_answer(self) -> None:
        """A worker dies between a message and the answer to it."""
        self.deliver(1, credit=False)
        self.start(self.parallelism)

    def cut(self, kind: SnapshotKind = SnapshotKind.CHECKPOINT) -> None:
        self.number += 1
        states = {}
        for index, operator in enumerate(self.subtasks):
            if index in self.done:
                continue
            if kind.stops_job:
                operator.stand_still(self.number, kind)
            operator.snapshot_state(self.number)
            pending = operator.context.operator_state.snapshot(self.number)
            states[index] = OperatorSubtaskState(operator=pending.write(MemoryOutput()))
        ended = frozenset(self.ending)
        self.taken.append(Checkpoint(self.number, self.position, states, self.parallelism, ended))

    def completes(self, *, notify: bool = True) -> None:
        if self.taken:
            self.complete = self.taken[-1]
            for index, operator in enumerate(self.subtasks):
                # One that had ended before what was restored hears of nothing.
                if notify and index not in self.done and not operator._resumed:
                    operator.notify_checkpoint_complete(self.complete.number)

    def rescale(self, parallelism: int) -> None:
        """As the engine does it: with a checkpoint at which all stand still."""
        self.cut(SnapshotKind.RESCALE)
        self.completes(notify=False)
        self.replace(parallelism)

    def replace(self, parallelism: int) -> None:
        """All tasks start again at that parallelism, as when a rescale has failed behind its checkpoint."""
        self.start(parallelism)
        self.buffer.replaced(parallelism, self.attempt, self.complete.number if self.complete else -1)

    def fetch(self) -> None:
        while not self.ended and (messages := self.available()):
            rows = self.client.take(messages)
            self.ended = rows is None
            self.got += rows or ()
        self._look()

    def available(self) -> tuple[CollectRows, ...]:
        """What the next fetch of the client brings; none where it would wait."""
        self.buffer._confirm(self.client.position)
        if not self.buffer._waiting and not self.buffer._closed:
            return ()
        messages: tuple[CollectRows, ...] = now(self.buffer.fetch(10_000, self.client.position))
        return messages

    def lose_fetched(self) -> None:
        """An answer to the client is lost on its way."""
        self.available()

    def finish(self) -> None:
        for index in range(self.parallelism):
            self.end(index)
        self.deliver(1 << 30)
        self._ends()

    def _ends(self) -> None:
        """All that is left to do is to wait for the client."""
        assert self.done | self.questions.keys() >= set(range(self.parallelism))
        self.buffer.release()
        self._look()
        self.deliver(1 << 30)
        assert self.done == set(range(self.parallelism))
        self.close(complete=True)

    def stop(self, kind: SnapshotKind = SnapshotKind.SAVEPOINT_SUSPEND) -> Checkpoint:
        """With a savepoint; the client reads to the end."""
        if kind is SnapshotKind.SAVEPOINT_TERMINATE:
            for index in set(range(self.parallelism)) - self.done:
                self.subtasks[index].finish()
        self.cut(kind)
        self.completes()
        savepoint = self.complete
        assert savepoint is not None
        self.ending = set(range(self.parallelism))
        self._look()
        self.deliver(1 << 30)
        self._ends()
        return savepoint

    def close(self, *, complete: bool) -> None:
        now(self.buffer.close(complete))
        self.fetch()


def _divided(checkpoint: Checkpoint, parallelism: int) -> list[OperatorSubtaskState]:
    state = OperatorState(
        operator_id=OPERATOR,
        name="Collect",
        uid=None,
        parallelism=checkpoint.parallelism,
        max_parallelism=128,
        subtasks=checkpoint.states,
    )
    return [OperatorSubtaskState(operator=handles) for handles in operator_handles(state, parallelism)]


def test_rows_are_handed_out_when_a_checkpoint_covers_them() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut()
    job.read(2)
    job.deliver()
    job.fetch()
    assert job.got == []
    job.completes()
    job.deliver()
    job.fetch()
    assert job.got == [0, 1, 2]
    job.finish()
    assert job.got == [0, 1, 2, 3, 4]


def test_rows_of_a_failed_attempt_are_dropped_and_come_again() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut()
    job.completes(notify=False)
    job.read(4)
    job.deliver()
    job.fetch()
    job.start(1)
    job.deliver()
    job.fetch()
    assert job.got == [0, 1, 2]
    job.read(4)
    job.finish()
    assert job.got == list(range(7))


def test_rows_that_nobody_took_are_in_the_checkpoint() -> None:
    job = Job()
    job.read(3)
    job.cut()
    job.completes()
    job.start(1)
    job.finish()
    assert job.got == [0, 1, 2]


def test_what_was_taken_without_an_answer_comes_once() -> None:
    job = Job()
    job.read(3)
    job.deliver(credit=False)
    job.cut()
    job.completes()
    job.start(1)
    job.finish()
    assert job.got == [0, 1, 2]


def test_a_job_that_fails_hands_out_what_is_covered_and_no_more() -> None:
    job = Job()
    job.read(2)
    job.cut()
    job.completes()
    job.read(2)
    job.deliver()
    job.close(complete=False)
    assert job.got == [0, 1] and job.ended


def test_without_checkpoints_rows_come_at_once() -> None:
    job = Job(exactly_once=False)
    job.read(2)
    job.deliver()
    job.fetch()
    assert job.got == [0, 1]
    job.start(1)
    job.read(3)
    job.deliver()
    job.fetch()
    assert job.got == [0, 1, 0, 1, 2]


def test_a_subtask_that_had_ended_sends_what_is_left() -> None:
    job = Job()
    job.read(2)
    job.end(0)
    job.cut()
    job.completes()
    job.start(1)
    job.finish()
    assert job.got == [0, 1]


def test_a_subtask_whose_input_has_ended_waits_until_the_client_has_its_rows() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    assert job.done == set(), "they are with the master alone"
    job.fetch()
    assert job.done == set(), "they may come again, from a checkpoint that does not cover them"
    job.cut()
    job.completes()
    job.deliver()
    assert job.done == set(), "the client does not know that they are covered"
    job.fetch()
    assert job.done == {0} and job.got == [0, 2, 1, 3]


def test_rows_of_a_subtask_whose_input_has_ended_outlive_a_master() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    job.cut()
    job.completes()
    job.new_master()
    assert job.ending == {0} and job.done == set()
    job.read(2)
    job.finish()
    assert sorted(job.got) == list(range(6))


def test_nobody_waits_for_a_client_that_is_gone_when_nothing_else_is_left() -> None:
    job = Job(2)
    job.read(4)
    job.end(0)
    job.deliver()
    job.end(1)
    job.deliver()
    assert job.done == set()
    job.buffer.release()
    job._look()
    assert job.done == {0, 1}


def test_a_subtask_that_starts_again_waits_anew() -> None:
    job = Job()
    job.read(2)
    job.end(0)
    job.deliver()
    job.buffer.release()
    job.buffer.restarts(0)
    job.start(1)
    job.read(2)
    job.end(0)
    job.deliver()
    assert job.done == set()


def test_without_exactly_once_a_subtask_waits_for_its_client_and_for_no_checkpoint() -> None:
    job = Job(exactly_once=False)
    job.read(2)
    job.end(0)
    job.deliver()
    assert job.done == set()
    job.fetch()
    assert job.done == {0} and job.got == [0, 1]


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT_SUSPEND, SnapshotKind.SAVEPOINT_TERMINATE])
def test_rows_before_a_savepoint_that_stops_the_job_are_its_own_clients_and_nobody_elses(
    kind: SnapshotKind,
) -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.read(2)
    savepoint = job.stop(kind)
    following = Job(savepoint=savepoint, collect_id="d")
    following.read(2)
    following.finish()
    assert [*job.got, *following.got] == list(range(7))


def test_rows_that_do_not_leave_before_the_job_stops_are_for_the_next_client() -> None:
    job = Job()
    job.read(1)  # is under way, so that the following wait
    job.read(2)
    savepoint = job.stop()
    following = Job(savepoint=savepoint, collect_id="d")
    following.finish()
    assert (job.got, following.got) == ([0], [1, 2])


def test_a_job_that_goes_on_from_the_savepoint_that_was_to_stop_it_has_all_its_rows() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut(SnapshotKind.SAVEPOINT_SUSPEND)
    job.completes()
    # Before the job has ended, and before the client has fetched anything.
    job.new_master()
    job.read(1)
    job.finish()
    assert job.got == list(range(4))


def test_nothing_leaves_while_a_savepoint_is_to_stop_the_job_and_all_does_when_it_is_given_up() -> None:
    job = Job()
    job.read(1)
    job.read(2)
    job.cut(SnapshotKind.SAVEPOINT_SUSPEND)
    job.deliver()
    job.fetch()
    assert job.subtasks[0]._own.sent == 1
    job.subtasks[0].notify_checkpoint_aborted(job.number)
    job.finish()
    assert job.got == [0, 1, 2]


def test_a_savepoint_that_the_job_outlives_holds_what_its_client_has_not() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut(SnapshotKind.SAVEPOINT)
    savepoint = job.taken[-1]
    job.finish()
    following = Job(savepoint=savepoint, collect_id="d")
    following.finish()
    assert job.got == following.got == [0, 1, 2]


def test_what_a_dead_master_had_taken_comes_from_the_next() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.cut()
    job.completes()
    job.read(2)
    job.deliver()
    # Taken by the master, which dies before the client has fetched it.
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 3, 4]


def test_what_the_client_has_is_not_handed_out_again_by_the_next_master() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.cut()
    job.completes()
    job.read(2)
    job.deliver()
    job.fetch()
    assert job.got == [0, 1, 2]
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("former", [False, True], ids=["rescale fails", "master dies"])
def test_rows_of_a_parallelism_that_is_given_up_are_void(former: bool) -> None:
    job = Job(1)
    job.read(2)
    job.deliver()
    job.rescale(2)
    job.read(2)
    job.deliver()
    job.fetch()
    if former:
        job.new_master(1)
    else:
        job.replace(1)
    job.read(4)
    job.finish()
    assert sorted(job.got) == list(range(6))


def test_rows_of_an_attempt_of_which_the_client_has_not_heard_are_not_taken_for_those_of_another() -> None:
    job = Job()
    job.read(3)
    job.deliver()
    job.fetch()
    job.new_master()
    # In another order, as inputs are read; the client does not ask while this master lives.
    job.subtasks[0].take_rows(["c", "a", "b"], None)
    job.deliver()
    job.cut()
    job.completes(notify=False)
    job.new_master()
    job.finish()
    assert job.got == ["c", "a", "b"]


@pytest.mark.parametrize("fields", [4, 5], ids=["no writers", "no client"])
def test_state_of_earlier_forms_is_restored(fields: int) -> None:
    job = Job()
    job.read(2)
    job.subtasks[0].snapshot_state(0)
    job.subtasks[0]._state.update([entry[:fields] for entry in job.subtasks[0]._state.get()])
    operator = job.subtasks[0]
    job.on_their_way.clear()
    operator._in_flight = False
    operator.open()
    job.finish()
    assert job.got == [0, 1]


def test_an_answer_that_is_lost_is_given_again() -> None:
    job = Job()
    job.read(2)
    job.deliver()
    job.lose_fetched()
    job.finish()
    assert job.got == [0, 1]


def test_without_exactly_once_what_came_of_a_checkpoint_comes_once() -> None:
    job = Job(exactly_once=False)
    job.read(2)
    job.deliver()
    job.fetch()
    job.cut()
    job.completes()
    job.read(1)
    job.deliver()
    job.fetch()
    job.new_master()
    job.read(2)
    job.finish()
    assert job.got == [0, 1, 2, 2, 3]


def test_the_operator_lets_go_of_what_the_client_has_and_of_nothing_else() -> None:
    job = Job()
    operator = job.subtasks[0]
    job.read(3)
    job.deliver()
    job.read(3)
    job.deliver()
    assert _held(job) == list(range(6))
    job.fetch()
    job.available()  # asks for more, and confirms by that
    assert _held(job) == list(range(6))
    job.read(1)
    job.deliver()
    assert _held(job) == [6] and operator.is_available


def test_a_slow_client_holds_the_operator_up_and_its_state_is_bounded() -> None:
    window, limit, message = 3000, CollectOperator(collect_id="c").max_buffered_rows, 1000
    job = Job(exactly_once=False)
    job.buffer = CollectBuffer(JOB, "c", 1, window, version="small")
    operator = job.subtasks[0]

    async def carry() -> None:
        while True:
            if not job.on_their_way:
                await asyncio.sleep(0)
                continue
            subtask, sent, attempt = job.on_their_way.pop(0)
            rows = CollectRows(
                job_id=JOB, subtask=subtask, attempt_number=job.attempt, attempt_id=attempt, **sent._asdict()
            )
            confirmation = await job.buffer.push(rows)
            operator.on_credit(sent.sequence, confirmation.positions)

    async def read_all_that_is_let() -> None:
        for _ in range(1000):
            if operator.is_available:
                job.read(100)
            await asyncio.sleep(0)
        assert not operator.is_available, "it is held up"

    async def body() -> None:
        carrying = asyncio.ensure_future(carry())
        await read_all_that_is_let()
        assert job.position <= window + message + limit
        while len(job.got) < job.position:
            job.got += job.client.take(await job.buffer.fetch(message, job.client.position)) or ()
        waiting = asyncio.ensure_future(job.buffer.fetch(message, job.client.position))
        before = job.position
        await read_all_that_is_let()
        assert job.position > before and job.got == list(range(before))
        assert len(_held(job)) <= window + 2 * message + limit
        for task in (carrying, waiting):
            task.cancel()

    asyncio.run(body())


def test_a_job_that_fails_again_and_again_does_not_fill_the_buffer_of_a_client_that_does_not_fetch() -> None:
    job = Job()
    job.read(3)
    job.cut()
    job.completes()
    for _ in range(20):
        job.start(1)
        job.deliver()
        job.read(2)
        job.deliver()
    assert job.buffer._rows == 5
    assert len(job.buffer._waiting) == 1 + 3, "that all begins, and messages of the last attempt"
    job.finish()
    assert job.got == list(range(5))


def _held(job: Job) -> list[Any]:
    """Rows in the state of the subtasks."""
    for operator in job.subtasks:
        operator.snapshot_state(99)
    return [row for operator in job.subtasks for _, _, _, rows, *_ in operator._state.get() for row in rows]


def test_record_batches_are_kept_too() -> None:
    batches = [pa.record_batch({"a": [number]}) for number in range(2)]
    job = Job()
    for batch in batches:
        job.subtasks[0].process_batch(ArrowBatch(batch, None, None))
    job.cut()
    job.completes()
    job.start(1)
    job.finish()
    assert job.got == batches


STEPS: dict[str, Callable[[Job], None]] = {
    "read": lambda job: job.read(3),
    "deliver one": lambda job: job.deliver(1),
    "lose the answer": lambda job: job.lose_answer(),
    "deliver": lambda job: job.deliver(),
    "fetch": lambda job: job.fetch(),
    "cut": lambda job: job.cut(),
    "complete": lambda job: job.completes(),
    "complete unheard": lambda job: job.completes(notify=False),
    "lose what was fetched": lambda job: job.lose_fetched(),
    "new master": lambda job: job.new_master(),
    "restart": lambda job: job.start(job.parallelism),
    "at 1": lambda job: job.rescale(1),
    "at 2": lambda job: job.rescale(2),
    "at 3": lambda job: job.rescale(3),
    "back to 1": lambda job: job.replace(1),
    "back to 3": lambda job: job.replace(3),
    "new master at 1": lambda job: job.new_master(1),
    "new master at 2": lambda job: job.new_master(2),
    "end of 0": lambda job: job.end(0),
    "end of 1": lambda job: job.end(1),
}


@pytest.mark.parametrize("parallelism", [1, 2])
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=40))
@settings(max_examples=150, deadline=None)
def test_each_row_comes_once_whatever_happens(parallelism: int, steps: list[str]) -> None:
    job = Job(parallelism)
    for step in steps:
        STEPS[step](job)
        assert len(set(job.got)) == len(job.got)
        covered = job.complete.position if job.complete else 0
        assert all(row < covered for row in job.got)
    job.read(2)
    end = job.position
    job.finish()
    assert sorted(job.got) == list(range(end))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@given(
    before=st.lists(st.sampled_from(sorted(STEPS)), max_size=20),
    after=st.lists(st.sampled_from(sorted(STEPS)), max_size=20),
    drain=st.booleans(),
)
@settings(max_examples=100, deadline=None)
def test_each_row_comes_once_over_the_clients_before_and_behind_a_savepoint(
    parallelism: int, before: list[str], after: list[str], drain: bool
) -> None:
    job = Job()
    for step in before:
        STEPS[step](job)
    savepoint = job.stop(SnapshotKind.SAVEPOINT_TERMINATE if drain else SnapshotKind.SAVEPOINT_SUSPEND)
    following = Job(parallelism, savepoint=savepoint, collect_id="d")
    for step in after:
        STEPS[step](following)
    following.read(2)
    end = following.position
    following.finish()
    assert sorted([*job.got, *following.got]) == list(range(end))
