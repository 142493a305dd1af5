"""write_whole and replace_whole: a reader sees a whole file, and a failure leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import BinaryIO

import pytest

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import is_hidden
from yarrow.runtime.fs import local
from yarrow.runtime.fs.whole_files import (
    TEMPORARY_PREFIX,
    FileNotWrittenError,
    replace_whole,
    replacing,
    write_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_is_whole_and_alone(tmp_path: Path) -> None:
    folder = tmp_path / "made" / "when needed"
    seen: list[list[str]] = []
    write_whole(str(folder / "a"), b"all of it", "7", lambda: seen.append(names(folder)))
    assert (folder / "a").read_bytes() == b"all of it"
    assert seen == [[f"{TEMPORARY_PREFIX}a-7"]] and names(folder) == ["a"]
    write_whole((folder / "b").as_uri(), b"")
    assert names(folder) == ["a", "b"]


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"first")
    with pytest.raises(FileExistsError, match=f"{path} exists already"):
        write_whole(str(path), b"second")
    assert path.read_bytes() == b"first" and names(tmp_path) == ["a"]


def test_two_that_write_at_once_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def other() -> None:
        write_whole(str(path), b"other")

    with pytest.raises(FileExistsError):
        write_whole(str(path), b"one", before_rename=other)
    assert path.read_bytes() == b"other" and names(tmp_path) == ["a"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "a"
    with pytest.raises(FileNotWrittenError, match=f"{path} cannot be written .*who may write there"):
        write_whole(str(path), b"?")


class Refusing(local.LocalFileSystem):
    """Fails when the new name is given."""

    error: BaseException

    def rename(self, source: str, target: str) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (
            OSError(28, "No space left on device", "_tmp-a"),
            FileNotWrittenError,
            "written (No space left on device)",
        ),
        (FileSystemError("safe mode"), FileNotWrittenError, "cannot be written (safe mode)"),
        (PermissionError(13, "Permission denied"), PermissionError, "may not be written"),
        (KeyboardInterrupt(), KeyboardInterrupt, ""),
    ],
)
def test_a_failure_leaves_nothing_and_names_the_file(
    tmp_path: Path, error: BaseException, raised: type[BaseException], said: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Refusing, "error", error, raising=False)
        patch.setattr(local, "LocalFileSystem", Refusing)
        with pytest.raises(raised, match=re.escape(said) or None) as failure:
            write_whole(str(tmp_path / "a"), b"?")
    assert names(tmp_path) == []
    assert not said or str(failure.value).startswith(str(tmp_path / "a"))


def test_a_crash_before_the_new_name_leaves_a_hidden_file(tmp_path: Path) -> None:
    def crash() -> None:
        raise RuntimeError("as if it were killed")

    with pytest.raises(RuntimeError):
        write_whole(str(tmp_path / "a"), b"?", "7", crash)
    assert names(tmp_path) == [f"{TEMPORARY_PREFIX}a-7"]
    assert all(map(is_hidden, names(tmp_path)))


def test_a_file_that_the_storage_has_shortened_gets_no_name(tmp_path: Path) -> None:
    path = tmp_path / "a"

    class Short(local.LocalFileSystem):
        def create(self, path: str, replication: int = 0) -> BinaryIO:
            stream = super().create(path, replication)
            close = stream.close

            def cut() -> None:
                close()
                os.truncate(path, 1)

            stream.close = cut  # type: ignore[method-assign]
            return stream

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "LocalFileSystem", Short)
        with pytest.raises(
            FileNotWrittenError, match=rf"{path} cannot be written \(the storage holds 1 of 3"
        ):
            write_whole(str(path), b"abc")
    assert names(tmp_path) == []


def test_its_name_is_on_the_disk_too(tmp_path: Path) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", noting)
        write_whole(str(tmp_path / "a"), b"?", "7")
    assert synced == [str(tmp_path / f"{TEMPORARY_PREFIX}a-7"), str(tmp_path)]


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_leaves_the_old_file_or_the_new_one(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "small"
    replace_whole(path, b"the old bytes")
    child = os.fork()
    if child == 0:
        try:
            replace_whole(path, b"new", before_rename=lambda: killed() if moment == "before" else None)
            killed()
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_bytes() == (b"the old bytes" if moment == "before" else b"new")
    left = [name for name in names(tmp_path) if name != "small"]
    assert all(name.startswith(TEMPORARY_PREFIX) for name in left) and len(left) == (moment == "before")


def test_bytes_are_durable_before_the_name_and_the_name_before_the_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.partition("-")[0])
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        steps.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    replace_whole(tmp_path / "small", b"x")
    assert steps == ["_tmp", "replace", tmp_path.name.partition("-")[0]]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666])
def test_a_replaced_file_has_the_mode_that_was_asked_for(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"old")
    path.chmod(0o777)
    replace_whole(path, b"new", mode)
    assert path.stat().st_mode & 0o7777 == mode


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others").write_bytes(b"theirs")
    (tmp_path / "small").symlink_to(tmp_path / "others")
    replace_whole(tmp_path / "small", b"ours")
    assert (tmp_path / "others").read_bytes() == b"theirs" and not (tmp_path / "small").is_symlink()


def test_a_replacement_that_fails_leaves_the_old_file_and_names_it(tmp_path: Path) -> None:
    path = tmp_path / "small"
    replace_whole(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half of the n")
        raise RuntimeError
    assert path.read_bytes() == b"old" and names(tmp_path) == ["small"]
    missing = tmp_path / "no folder" / "small"
    with pytest.raises(FileNotFoundError, match=re.escape(f"'{missing}'")):
        replace_whole(missing, b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match=re.escape(f"'{tmp_path / 'folder'}'")):
        replace_whole(tmp_path / "folder", b"x")
    assert names(tmp_path) == ["folder", "small"]
