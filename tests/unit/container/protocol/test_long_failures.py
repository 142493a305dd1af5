"""A failure of any length becomes text that a message can carry: type, frames and both ends of the message stay."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.test_failover import CANCELED, FAILED, PLAIN, restarting
from yarrow.am.jobmaster.details import job_details, job_result
from yarrow.common.job_status import JobStatus
from yarrow.container.protocol.failure import OperatorFailure, failure_cause
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.rpc.messages import FailureCause

LONG = "HEAD" + "x" * 6_000_000 + "TAIL"


class RowError(Exception):
    """A user's own."""


def fails(message: str) -> None:
    raise RowError(message)


def cause_of(error: BaseException) -> FailureCause:
    """As a task tells it."""
    return failure_cause(OperatorFailure("mapper", "3", error), "task 'all' (subtask 1/2)")


def long_failure() -> FailureCause:
    with pytest.raises(RowError) as caught:
        fails(LONG)
    return cause_of(caught.value)


class FinalError(YarrowError):
    """No attempt can help."""

    is_final = True


def test_an_error_that_no_attempt_can_help_fails_the_job_in_spite_of_restarts() -> None:
    assert not cause_of(YarrowError("again")).is_final
    cause = cause_of(FinalError("refused"))
    assert cause.is_final and not cause.needs_user
    password = YarrowError("a wrong password")
    password.needs_user = True
    assert cause_of(password).needs_user
    job = restarting(linear_job(Stage(2)))
    job.running(2)
    job.report(FAILED, job.execution(0, 0), cause=cause)
    assert job.graph.status is JobStatus.FAILING
    job.report(CANCELED)
    assert job_result(job.graph).cause == cause


def test_a_long_message_keeps_type_frames_and_both_ends() -> None:
    cause = long_failure()
    assert cause.exception_name.endswith(".RowError")
    text = cause.stacktrace
    assert len(text) < 10_000
    assert text.startswith("Traceback (most recent call last):")
    assert "in fails\n    raise RowError(message)\n" in text
    assert f"{RowError.__module__}.RowError: HEADxxx" in text
    assert "characters left out ...\nxxx" in text
    assert text.endswith(
        "xTAIL\n  in operator 'mapper', task 'all' (subtask 1/2)\n  while it had the record 3\n"
    )
    assert len(cause.message) < 2_000


def test_a_chain_of_long_messages_keeps_the_first_frames_and_the_last_type() -> None:
    def wrap(depth: int) -> None:
        try:
            fails(f"at the bottom {LONG}") if depth == 0 else wrap(depth - 1)
        except RowError as error:
            raise RowError(f"level {depth} {LONG}") from error

    with pytest.raises(RowError) as caught:
        wrap(30)
    text = cause_of(caught.value).stacktrace
    assert len(text) < 13_000
    assert "RowError: at the bottom HEADx" in text
    assert "RowError: level 30 HEADx" in text


def test_a_short_failure_is_told_whole() -> None:
    with pytest.raises(RowError) as caught:
        fails("of one line\nand another")
    cause = cause_of(caught.value)
    assert cause.message == "of one line\nand another"
    assert "left out" not in cause.stacktrace


def test_the_details_of_a_job_tell_it_once() -> None:
    job = restarting(linear_job(Stage(1, operator=PLAIN)), attempts=2)
    job.running(1)
    cause = long_failure()
    job.report(FAILED, job.execution(0, 0), cause=cause)
    details = msgspec.msgpack.encode(job_details(job.graph))
    assert details.count(b"in fails\n") == 1
    assert len(details) < len(cause.stacktrace) + 5_000
