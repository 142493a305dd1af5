"""`yarrow dashboard`: one known file is kept, from a path or by Maven; anything else is refused and leaves nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from yarrow.cli import dashboard_command
from yarrow.cli.dashboard_command import get_dashboard
from yarrow.client.errors import CommandError
from yarrow.runtime.config.web_pages import kept_archive

CONTENT = b"stands for the archive"


@pytest.fixture(autouse=True)
def a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(dashboard_command, "SHA256", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def said() -> list[str]:
    return []


def maven_that(folder: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """A program `mvn` that does so, before all others."""
    folder.mkdir()
    program = folder / "mvn"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def left() -> list[Path]:
    return [path for path in kept_archive().parent.iterdir() if path != kept_archive()]


def test_a_file_at_hand_is_kept_if_it_is_the_one(tmp_path: Path, said: list[str]) -> None:
    source = tmp_path / "downloaded.jar"
    source.write_bytes(CONTENT)
    kept = get_dashboard(str(source), said.append)
    assert kept == kept_archive()
    assert kept.read_bytes() == CONTENT
    assert str(kept) in said[-1]
    assert left() == []
    # A second time nothing is fetched: there is no Maven to do it.
    assert get_dashboard(None, said.append) == kept
    assert "already" in said[-1]


def test_another_file_is_refused_and_the_kept_one_stays(tmp_path: Path, said: list[str]) -> None:
    right, wrong = tmp_path / "right.jar", tmp_path / "wrong.jar"
    right.write_bytes(CONTENT)
    wrong.write_bytes(CONTENT + b".")
    get_dashboard(str(right), said.append)
    with pytest.raises(CommandError, match="Nothing was kept") as refused:
        get_dashboard(str(wrong), said.append)
    assert str(wrong) in str(refused.value)
    assert hashlib.sha256(CONTENT + b".").hexdigest() in str(refused.value)
    assert kept_archive().read_bytes() == CONTENT
    assert left() == []


def test_a_file_that_is_not_there_is_named(tmp_path: Path, said: list[str]) -> None:
    with pytest.raises(CommandError, match=r"missing\.jar cannot be read: No such file"):
        get_dashboard(str(tmp_path / "missing.jar"), said.append)
    assert left() == []


def test_maven_brings_it_where_no_file_is_named(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    brings = (
        'for flag; do case $flag in -DoutputDirectory=*) folder=${flag#*=};; -Dartifact=*) echo "$flag" > "$0.asked";;'
        f' esac; done; mkdir -p "$folder"; printf "%s" "{CONTENT.decode()}" > "$folder/flink-runtime-web-2.3.0.jar"'
    )
    maven_that(tmp_path / "bin", monkeypatch, brings)
    assert get_dashboard(None, said.append).read_bytes() == CONTENT
    asked = (tmp_path / "bin" / "mvn.asked").read_text().strip()
    assert asked == "-Dartifact=org.apache.flink:flink-runtime-web:2.3.0"
    assert left() == []


def test_a_maven_that_fails_is_quoted(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    maven_that(tmp_path / "bin", monkeypatch, "echo no repository answers; exit 1")
    with pytest.raises(CommandError, match="--from PATH") as failed:
        get_dashboard(None, said.append)
    assert "no repository answers" in str(failed.value)
    assert left() == []


def test_a_missing_maven_is_named(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"Maven \(mvn\) is not on PATH.*--from PATH"):
        get_dashboard(None, said.append)
    assert left() == []
