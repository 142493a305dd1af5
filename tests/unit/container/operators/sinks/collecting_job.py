"""A job with a collect operator, its master's buffer and its client, moved step by step: what the tests of
execute_and_collect share.

Owner: the test's thread. Only the operator, the buffer and the client are real; what carries messages between them is
the test's to decide.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.support.task_environments import task_environment
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.client.collected_rows import CollectedRows
from yarrow.container.operators.base import (
    NOTHING_RESTORED,
    CollectMessage,
    OperatorContext,
    RestoredState,
)
from yarrow.container.operators.sinks.collecting import AWAITS, CollectingOperator
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.rpc.messages import CollectRows
from yarrow.runtime.security.result_proof import SAME_PROCESS
from yarrow.runtime.snapshot.handles import OperatorState, OperatorSubtaskState
from yarrow.runtime.snapshot.redistribution import operator_handles
from yarrow.runtime.snapshot.result_rows import ResultReader, ResultStream

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
        self.client = CollectedRows(ResultReader(ResultStream(JOB, collect_id), SAME_PROCESS).load)
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
        attempt = ExecutionAttemptID(f"{self.attempt}-{subtask}")
        environment = task_environment(
            ManualClock(0),
            {"execution.checkpointing.interval": "1 s"},
            job_id=JOB,
            attempt_id=attempt,
            task_name="Collect",
            subtask=subtask,
            parallelism=self.parallelism,
            attempt_number=self.attempt,
            push_collected=lambda message: self.on_their_way.append((subtask, message, attempt)),
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


def held(job: Job) -> list[Any]:
    """Rows in the state of the subtasks."""
    for operator in job.subtasks:
        operator.snapshot_state(99)
    return [row for operator in job.subtasks for _, _, _, rows, *_ in operator._state.get() for row in rows]
