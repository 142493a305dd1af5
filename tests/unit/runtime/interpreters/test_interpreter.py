"""Which interpreter workers get, and what is said of one that does not fit."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.interpreters.environment import environment_for
from yarrow.runtime.interpreters.interpreter import (
    archive_folder,
    archive_of_interpreter,
    unfit,
    worker_interpreter,
)


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("entry", "folder"),
    [
        ("venv.zip", "venv.zip"),
        ("/data/venv.zip", "venv.zip"),
        ("hdfs://name:8020/lib/venv.tar.gz", "venv.tar.gz"),
        ("venv.zip#env", "env"),
        ("data/venv.zip#deep/env/", "deep/env"),
    ],
)
def test_where_an_archive_is_unpacked(entry: str, folder: str) -> None:
    assert archive_folder(entry) == folder


@pytest.mark.parametrize(
    ("executable", "archive"),
    [
        ("venv.zip/venv/bin/python", "a/venv.zip"),
        ("./venv.zip/venv/bin/python", "a/venv.zip"),
        ("env/bin/python", "b.zip#env"),
        ("environment/bin/python", ""),
        ("/env/bin/python", ""),
        ("../env/bin/python", ""),
        ("env", ""),
        ("python", ""),
    ],
)
def test_the_archive_that_holds_the_interpreter(executable: str, archive: str) -> None:
    config = Settings({"python.archives": "a/venv.zip,b.zip#env", "python.executable": executable})
    assert archive_of_interpreter(config) == archive
    if archive:
        assert worker_interpreter(config) == sys.executable, "until a job has brought it"


def test_one_that_is_in_no_archive_must_be_there() -> None:
    config = Settings({"python.archives": "venv.zip", "python.executable": "other.zip/bin/python"})
    with pytest.raises(InvalidOptionValue, match=r"'other\.zip/bin/python': there is no such program"):
        worker_interpreter(config)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 3", "it is no Python: asked for its version it ended with status 3 (no reason given)"),
        ("echo 'no library' >&2; exit 127", "ended with status 127 (no library)"),
        ("echo 3.4", "it is Python 3.4, and functions do not travel between versions"),
        ("echo {version}; echo 'ImportError: yarrow' >&2; exit 1", "(ImportError: yarrow); install it there"),
        ("echo {version}; echo 0.0.1", "it has Yarrow 0.0.1, and this is Yarrow"),
    ],
)
def test_an_unfit_interpreter_is_told_why(tmp_path: Path, text: str, reason: str) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert reason in unfit(script(tmp_path, text.format(version=version)), os.environ)


def test_what_cannot_be_executed_is_no_interpreter(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    for path in (tmp_path, plain, tmp_path / "missing"):
        assert "there is no such program" in unfit(str(path), {})
    # What is started is no program that the system knows.
    plain.chmod(0o755)
    plain.write_bytes(b"\x7fELF")
    assert "it cannot be run" in unfit(str(plain), {})


def test_this_interpreter_fits() -> None:
    assert unfit(sys.executable, os.environ) == ""


def test_another_interpreter_does_not_find_the_libraries_of_this_one() -> None:
    own, other = f"{sys.base_prefix}/lib", "/opt/libraries"
    environment = {"LD_LIBRARY_PATH": f"{own}:{other}", "A": "b"}
    assert environment_for("/venv/bin/python", environment) == {"LD_LIBRARY_PATH": other, "A": "b"}
    assert environment_for("/venv/bin/python", {"LD_LIBRARY_PATH": own}) == {}
    assert environment_for(sys.executable, environment) == environment
