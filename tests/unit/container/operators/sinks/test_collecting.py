"""Rows of execute_and_collect: which are handed out, through failures of tasks; how much waits for a slow client."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from tests.unit.container.operators.sinks.collecting_job import JOB, Job, held
from yarrow.am.jobmaster.collecting.collect_buffer import CollectBuffer
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.rpc.messages import CollectRows


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


def test_the_operator_lets_go_of_what_the_client_has_and_of_nothing_else() -> None:
    job = Job()
    operator = job.subtasks[0]
    job.read(3)
    job.deliver()
    job.read(3)
    job.deliver()
    assert held(job) == list(range(6))
    job.fetch()
    job.available()  # asks for more, and confirms by that
    assert held(job) == list(range(6))
    job.read(1)
    job.deliver()
    assert held(job) == [6] and operator.is_available


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
        assert len(held(job)) <= window + 2 * message + limit
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
