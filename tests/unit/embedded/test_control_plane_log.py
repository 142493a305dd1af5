"""The log of an embedded control plane: lines of its own loggers, by the client's levels, until it ends."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from yarrow.embedded.control_plane_log import FILE_NAME, ControlPlaneLog


def test_lines_that_the_levels_let_through_are_in_a_file_of_the_owner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = ControlPlaneLog(tmp_path)
    path = tmp_path / FILE_NAME
    assert not path.exists()
    try:
        with caplog.at_level(logging.WARNING, "yarrow"):
            logging.getLogger("yarrow.am.dispatcher").warning("a job was lost: %s", "words")
            logging.getLogger("yarrow.am.dispatcher").info("not wanted")
            logging.getLogger("of.the.user").warning("not ours")
    finally:
        log.end()
    logging.getLogger("yarrow.am.dispatcher").warning("too late")
    (line,) = path.read_text().splitlines()
    assert line.endswith("WARNING yarrow.am.dispatcher - a job was lost: words")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_that_cannot_be_written_fails_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log = ControlPlaneLog(tmp_path / "missing")
    try:
        logging.getLogger("yarrow.am").warning("goes nowhere")
    finally:
        log.end()


def test_warnings_still_reach_stderr_where_the_client_has_no_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    class LastResort(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    monkeypatch.setattr(logging, "lastResort", LastResort(logging.WARNING))
    engine = logging.getLogger("yarrow")
    # Handlers of the root logger are the test runner's.
    monkeypatch.setattr(engine, "propagate", False)
    logs = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        logs.append(ControlPlaneLog(tmp_path / name))
    try:
        logging.getLogger("yarrow.am").warning("a job restarts")
        logging.getLogger("yarrow.am").info("below the level")
        own = logging.NullHandler()
        engine.addHandler(own)
        logging.getLogger("yarrow.am").warning("the client's handler has this")
        engine.removeHandler(own)
    finally:
        for log in logs:
            log.end()
    assert said == ["a job restarts"], "once, though two clusters run"
