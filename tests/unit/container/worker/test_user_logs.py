"""What user code logs in a worker: text with its place, no more than a client can read, and the engine's own apart."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from yarrow.container.protocol.worker_protocol import FromWorker, LogLines, UserLogRecord
from yarrow.container.worker.log_origin import NO_ORIGIN, origin_of
from yarrow.container.worker.user_logs import ClientLogHandler, use_client_levels
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.rpc.output_stream import LoggedRecord


class Worker:
    """A handler as a worker has it, with what it has sent, on a clock that a test sets."""

    def __init__(self, logger: logging.Logger) -> None:
        self.sent: list[FromWorker] = []
        self.clock = ManualClock()
        self.handler = ClientLogHandler(self.sent.append, self.clock)
        self.logger = logger
        logger.addHandler(self.handler)

    @property
    def records(self) -> list[LoggedRecord]:
        return [message.record for message in self.sent if isinstance(message, UserLogRecord)]


@pytest.fixture
def worker() -> Iterator[Worker]:
    logger = logging.getLogger("tests.user_logs")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    made = Worker(logger)
    yield made
    logger.removeHandler(made.handler)


def test_a_record_travels_as_text(worker: Worker) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        worker.logger.error("row %s of %r", 3, object, exc_info=True, stack_info=True)
    (record,) = worker.records
    assert (record.name, record.level) == ("tests.user_logs", logging.ERROR)
    assert record.message == "row 3 of <class 'object'>"
    assert record.traceback.startswith("Traceback (most recent call last):")
    assert "KeyError: 'lost'" in record.traceback
    assert "Stack (most recent call last):" in record.traceback
    assert record.path == __file__
    assert record.function == "test_a_record_travels_as_text"
    message = worker.sent[0]
    assert isinstance(message, UserLogRecord)
    assert "ERROR tests.user_logs - row 3 of <class 'object'>\nTraceback" in message.text


def test_arguments_that_do_not_fit_are_told_as_logging_tells_them(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    # Straight to the handler: the one of pytest raises.
    worker.handler.handle(
        worker.logger.makeRecord("job", logging.WARNING, __file__, 1, "%d rows", ("many",), None)
    )
    assert worker.records == []
    assert "--- Logging error ---" in capsys.readouterr().err


def test_a_huge_message_is_cut_in_the_middle(worker: Worker) -> None:
    worker.logger.warning("first %s last", "x" * (5 << 20))
    (record,) = worker.records
    assert len(record.message) < 2 << 20
    assert record.message.startswith("first x")
    assert record.message.endswith("x last")
    assert "characters left out" in record.message


def test_more_than_a_thousand_records_a_second_are_dropped_and_counted(worker: Worker) -> None:
    for number in range(1007):
        worker.logger.info("row %d", number)
    assert [record.message for record in worker.records] == [f"row {n}" for n in range(1000)]
    worker.clock.advance(1.0)
    worker.logger.info("of the next second")
    told, following = worker.records[1000:]
    assert told.message.startswith("7 log records of a worker were dropped")
    assert (told.name, told.level) == ("yarrow.worker", logging.WARNING)
    assert following.message == "of the next second"


def test_at_the_end_of_a_task_the_count_is_told_once(worker: Worker) -> None:
    for number in range(1002):
        worker.logger.info("row %d", number)
    worker.handler.flush()
    worker.handler.flush()
    assert [record.message[:13] for record in worker.records[1000:]] == ["2 log records"]


def test_records_of_the_engine_go_to_the_log_file_alone(worker: Worker) -> None:
    own = logging.getLogger("yarrow.tests.user_logs")
    own.addHandler(worker.handler)
    try:
        own.warning("of the engine")
    finally:
        own.removeHandler(worker.handler)
    (line,) = worker.sent
    assert isinstance(line, LogLines)
    assert line.text.endswith("WARNING yarrow.tests.user_logs - of the engine\n")


def test_levels_of_the_client_are_set_but_for_the_engines_loggers() -> None:
    root, own, users = (logging.getLogger(name) for name in (None, "yarrow", "tests.user_logs.levels"))
    before = [logger.level for logger in (root, own)]
    try:
        use_client_levels({"": logging.DEBUG, "yarrow": logging.DEBUG, users.name: logging.ERROR})
        assert (root.level, own.level, users.level) == (logging.DEBUG, logging.WARNING, logging.ERROR)
    finally:
        for logger, level in zip((root, own), before, strict=True):
            logger.setLevel(level)


def test_code_that_no_task_runs_has_no_origin() -> None:
    assert origin_of(sys._getframe()) == NO_ORIGIN
