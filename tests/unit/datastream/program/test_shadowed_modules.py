"""A file of the program's folder with the name of a module that Yarrow needs is named when the import fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = "from yarrow.datastream import StreamExecutionEnvironment\n"


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "job.py").write_text(_PROGRAM)
    return subprocess.run(
        [sys.executable, str(folder / "job.py")], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("file", "named"), [("msgspec.py", "msgspec.py"), ("msgspec/__init__.py", "msgspec")]
)
def test_the_file_that_hides_another_is_named(tmp_path: Path, file: str, named: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("x = 1\n")
    (tmp_path / "words.py").write_text("")
    done = run(tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: yarrow.datastream.StreamExecutionEnvironment cannot be imported: ")
    assert f"In the program's folder {tmp_path / named} hides the module of that name" in last


def test_without_such_a_file_nothing_is_said_of_one(tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text("")
    text = (
        "import words\n"
        "from yarrow.datastream.program.shadowed_modules import import_failure\n"
        "print(import_failure('a', AttributeError('b')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )
    assert done.stdout == "a cannot be imported: b\n"
