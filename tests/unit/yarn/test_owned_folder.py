"""Temporary folders of clients: those of killed ones go with the next client, no other folder does."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from yarrow.runtime.yarn.owned_folder import DRIVER, SUBMISSION, OwnedFolder, sweep

CLIENT = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from yarrow.runtime.yarn.owned_folder import DRIVER, SUBMISSION, OwnedFolder
made = [OwnedFolder(prefix) for prefix in (SUBMISSION, DRIVER)]
for folder in made:
    (folder.path / "secrets").write_text("of the application")
print("made", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_folders_of_a_killed_client_are_removed_and_those_of_living_ones_stay(temporary: Path) -> None:
    own = OwnedFolder(SUBMISSION)
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
    assert list(temporary.iterdir()) == [own.path]
    own.remove()
    own.remove()
    assert list(temporary.iterdir()) == []


def test_what_no_client_has_made_stays(temporary: Path) -> None:
    without_lock = temporary / f"{SUBMISSION}a"
    without_lock.mkdir(mode=0o700)
    abandoned = OwnedFolder(DRIVER)
    open_to_others = temporary / f"{DRIVER}b"
    abandoned.path.rename(open_to_others)
    open_to_others.chmod(0o755)
    (temporary / f"{SUBMISSION}link").symlink_to(without_lock)
    (temporary / f"{SUBMISSION}file").touch()
    abandoned.remove()
    before = set(temporary.iterdir())
    sweep()
    assert set(temporary.iterdir()) == before
    open_to_others.chmod(0o700)
    sweep()
    assert set(temporary.iterdir()) == before - {open_to_others}
