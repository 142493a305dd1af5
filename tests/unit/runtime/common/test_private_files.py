"""Logs and what programs print: others may not read them, whatever the umask of the process."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.container.process.task_executor_process import configure_logging
from yarrow.runtime.common.private_files import PrivateFileHandler, private_opener


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_and_an_older_one_are_not_readable_by_others(tmp_path: Path) -> None:
    new, older = tmp_path / "new.out", tmp_path / "older.out"
    older.write_text("a")
    assert mode(older) == 0o666
    for path in (new, older):
        with open(path, "ab", opener=private_opener) as file:
            file.write(b"b")
    assert mode(new) == 0o640
    assert mode(older) == 0o660
    assert older.read_text() == "ab"


def test_log_files_are_not_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure_logging(tmp_path / "taskexecutor.log")
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, PrivateFileHandler)
    handler.close()
    assert mode(tmp_path / "taskexecutor.log") == 0o640
