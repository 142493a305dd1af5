"""write_whole: a reader sees the whole file or none, and a failure leaves nothing behind."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

import pytest

from yarrow.runtime.fs import local
from yarrow.runtime.fs.file_system import FileSystemError, is_hidden
from yarrow.runtime.fs.whole_files import TEMPORARY_PREFIX, FileNotWrittenError, write_whole


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
    with pytest.raises(FileExistsError, match=f"{path} is there already"):
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
            FileNotWrittenError, match=rf"{path} cannot be written \(the storage holds 1 of its 3"
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
