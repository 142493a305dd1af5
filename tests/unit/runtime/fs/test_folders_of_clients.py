"""Temporary folders of clients: those of killed ones go with the next client, no other folder does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yarrow.client.yarn.abandoned_files import was_never_submitted
from yarrow.runtime.fs.client_folder import (
    WORKING_DIRECTORY_PREFIX,
    ClientFolder,
    embedded_folder,
    remove_abandoned,
    remove_orphaned,
)
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.layout import DRIVER_FOLDER, SUBMISSION_FOLDER
from yarrow.runtime.yarn.skein_driver import SkeinDriver

DAY_MS = 24 * 3600 * 1000
CLIENT = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from yarrow.runtime.fs.client_folder import ClientFolder
from yarrow.runtime.yarn.layout import DRIVER_FOLDER, SUBMISSION_FOLDER
made = [ClientFolder(prefix=prefix) for prefix in (SUBMISSION_FOLDER, DRIVER_FOLDER)]
for folder in made:
    open(folder.path + "/secrets", "w").close()
print("made", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def sweep() -> None:
    for prefix in (SUBMISSION_FOLDER, DRIVER_FOLDER):
        remove_abandoned(prefix=prefix)


def test_folders_of_a_killed_client_are_removed_and_those_of_living_ones_stay(temporary: Path) -> None:
    own = ClientFolder(prefix=SUBMISSION_FOLDER)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(temporary)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with client:
        assert client.stdout is not None
        assert client.stdout.readline() == "made\n"
        before = set(temporary.iterdir())
        assert len(before) == 3
        sweep()
        assert set(temporary.iterdir()) == before, "their owners live"
        client.send_signal(signal.SIGKILL)
    sweep()
    assert list(temporary.iterdir()) == [Path(own.path)]
    own.remove()
    own.remove()
    assert list(temporary.iterdir()) == []


def test_what_no_client_has_made_stays(temporary: Path) -> None:
    without_lock = temporary / f"{SUBMISSION_FOLDER}a"
    without_lock.mkdir(mode=0o700)
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    (temporary / f"{SUBMISSION_FOLDER}link").symlink_to(elsewhere)
    (temporary / f"{DRIVER_FOLDER}file").touch()
    before = set(temporary.iterdir())
    sweep()
    assert set(temporary.iterdir()) == before
    assert (elsewhere / "lock").exists()


def test_a_client_without_hadoops_program_leaves_no_folder(temporary: Path) -> None:
    java = temporary / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    driver = SkeinDriver((b"", b""), {"JAVA_HOME": str(temporary / "jdk"), "PATH": str(temporary)}, {})
    with pytest.raises(YarnError, match="no program `yarn` on PATH"):
        driver.address()
    driver.close()
    assert list(temporary.iterdir()) == [temporary / "jdk"]


@pytest.mark.parametrize(
    ("application", "age_ms", "goes"),
    [
        ("application_1700000000000_0003", DAY_MS + 1, True),
        # Its client may still be uploading.
        ("application_1700000000000_0003", DAY_MS - 1, False),
        # Of another YARN, or of this one before it started: it may run.
        ("application_1600000000000_0003", 9 * DAY_MS, False),
    ],
)
def test_of_uploads_that_yarn_never_heard_of_only_old_ones_of_this_yarn_go(
    application: str, age_ms: int, goes: bool
) -> None:
    now_ms = 1_800_000_000_000
    latest = "application_1700000000000_0012"
    assert was_never_submitted(application, now_ms - age_ms, latest, now_ms) is goes
    assert not was_never_submitted(application, 0, "", now_ms), "nobody knows which YARN is asked"


def test_the_last_process_of_a_killed_client_removes_the_folder_of_the_cluster(tmp_path: Path) -> None:
    folder = ClientFolder(str(tmp_path))
    cluster = Path(folder.path)
    first, second = cluster / f"{WORKING_DIRECTORY_PREFIX}1", cluster / f"{WORKING_DIRECTORY_PREFIX}2"
    for each in (first, second):
        each.mkdir()
    assert embedded_folder(first) == cluster
    assert embedded_folder(tmp_path / "other" / "1") is None
    remove_orphaned(first)
    assert second.exists() and not first.exists()
    assert folder._lock is not None
    os.close(folder._lock)
    remove_orphaned(second)
    assert not cluster.exists()
