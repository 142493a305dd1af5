"""Records of workers in the client's `logging`: its levels, filters and handlers decide."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from yarrow.client.client_logging import NOTHING, log_to_client, wanted_levels
from yarrow.runtime.rpc.output_stream import LoggedRecord

NAME = "tests.client_logging"


@contextmanager
def the_clients_handler() -> Iterator[io.StringIO]:
    """A handler of level INFO on the logger, and what it writes; entered in a test, behind what pytest adds."""
    level = logging.root.level
    logging.root.setLevel(logging.WARNING)
    logger = logging.getLogger(NAME)
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setLevel(logging.INFO)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(name)s %(operator)s/%(subtask)d %(asctime)s %(message)s", "%Y")
    )
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield text
    finally:
        logger.handlers.clear()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
        logging.root.setLevel(level)


def record(level: int, message: str = "a row", traceback: str = "") -> LoggedRecord:
    """As a worker sends it."""
    return LoggedRecord(
        name=NAME, level=level, created=0.5, message=message, traceback=traceback, operator="parse", subtask=1
    )


def test_a_record_is_written_as_if_it_were_logged_here() -> None:
    with the_clients_handler() as written:
        log_to_client(record(logging.ERROR, "100 % of it %s", "Traceback: ...\nValueError: x"))
        log_to_client(record(logging.DEBUG))
        assert written.getvalue() == (
            f"ERROR {NAME} parse/1 1970 100 % of it %s\nTraceback: ...\nValueError: x\n"
        )


def test_levels_of_loggers_and_handlers_say_what_is_wanted() -> None:
    with the_clients_handler():
        # The handler writes from INFO on.
        assert wanted_levels()[NAME] == logging.INFO
        logging.getLogger(NAME).setLevel(logging.ERROR)
        assert wanted_levels()[NAME] == logging.ERROR
        logging.getLogger(NAME).disabled = True
        try:
            assert wanted_levels()[NAME] == NOTHING
        finally:
            logging.getLogger(NAME).disabled = False


def test_a_logger_that_wants_what_is_above_it_is_not_named() -> None:
    with the_clients_handler():
        logging.getLogger(f"{NAME}.below")
        assert f"{NAME}.below" not in wanted_levels()


def test_a_switch_for_all_counts() -> None:
    with the_clients_handler() as written:
        logging.disable(logging.WARNING)
        try:
            levels = wanted_levels()
            assert levels.get(NAME, levels[""]) == logging.WARNING + 1
            log_to_client(record(logging.WARNING))
        finally:
            logging.disable(logging.NOTSET)
        assert written.getvalue() == ""


def test_without_handlers_warnings_are_wanted_and_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    assert wanted_levels()[""] == logging.WARNING
    log_to_client(record(logging.INFO, "not this"))
    log_to_client(record(logging.WARNING, "but this"))
    assert capsys.readouterr().err == "but this\n"


def test_a_filter_that_fails_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with the_clients_handler() as written:

        def refuse(of: logging.LogRecord) -> bool:
            raise LookupError("a filter of the program")

        logging.getLogger(NAME).addFilter(refuse)
        try:
            log_to_client(record(logging.ERROR))
        finally:
            logging.getLogger(NAME).removeFilter(refuse)
        assert "LookupError: a filter of the program" in capsys.readouterr().err
        log_to_client(record(logging.ERROR, "the next"))
        assert "the next" in written.getvalue()
