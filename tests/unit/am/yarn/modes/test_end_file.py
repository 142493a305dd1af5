"""The end of an application in its own folder, for the attempt that comes after it."""

from __future__ import annotations

from pathlib import Path

from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.am.yarn.modes.end_file import END_FILE, EndFile
from yarrow.runtime.fs.whole_files import temporary_name
from yarrow.runtime.yarn.gateways import FinalStatus

FAILED = ApplicationEnd(FinalStatus.FAILED, "Traceback\nValueError: \u00fc")
KILLED = ApplicationEnd(FinalStatus.KILLED, "Job 'a' was cancelled.")


def test_the_first_end_stays(tmp_path: Path) -> None:
    file = EndFile(str(tmp_path / "application_1_1"))
    assert file.read() is None
    file.write(FAILED)
    file.write(KILLED)
    assert file.read() == FAILED
    assert [path.name for path in (tmp_path / "application_1_1").iterdir()] == [END_FILE]


def test_what_an_attempt_had_half_written_is_no_end(tmp_path: Path) -> None:
    Path(temporary_name(str(tmp_path / END_FILE), "7")).write_bytes(b'{"status": "FAI')
    file = EndFile(str(tmp_path))
    assert file.read() is None
    file.write(KILLED)
    assert file.read() == KILLED


def test_what_does_not_decode_is_none(tmp_path: Path) -> None:
    (tmp_path / END_FILE).write_bytes(b"?")
    assert EndFile(str(tmp_path)).read() is None
