"""What bounded jobs print on a standalone cluster."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from yarrow.standalone.printed_output import PrintedOutput


def test_printed_lines_are_appended_to_a_private_file(tmp_path: Path) -> None:
    for text in ("1\n2\n", "drei ä\n"):
        PrintedOutput(tmp_path).write(text)
    [path] = tmp_path.glob("*.out")
    assert path.read_text(encoding="utf-8") == "1\n2\ndrei ä\n"
    assert not path.name.startswith("taskexecutor-"), "REST takes it for the JobManager's"
    assert not stat.S_IMODE(path.stat().st_mode) & 0o007


def test_a_file_that_takes_nothing_costs_the_text_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = PrintedOutput(tmp_path)
    output.path.mkdir()
    with caplog.at_level(logging.WARNING):
        output.write("lost\n")
        output.write("lost too\n")
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text
    output.path.rmdir()
    output.write("kept\n")
    assert output.path.read_text() == "kept\n"
