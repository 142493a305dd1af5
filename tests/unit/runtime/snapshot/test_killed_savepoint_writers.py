"""A process that dies at any step of a savepoint with foreign files: a whole savepoint is left, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.runtime.snapshot.writing.test_savepoint_folder import METADATA, OWNER
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.fs.local import LocalFileSystem
from yarrow.runtime.snapshot.handles import CheckpointMetadata, FileStateHandle, OperatorState
from yarrow.runtime.snapshot.metadata import METADATA_FILE
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles, SavepointFolder

#: What changes a folder.
CHANGES = ("create", "rename", "delete")


class Killed(BaseException):
    """The process is no more: nothing of it runs."""


class Steps:
    """Counts the changes of files, and calls `at` before the one of that number, and instead of all that follow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.done = 0
        self.stop_at: int | None = None
        self.before: Callable[[], None] | None = None
        self._inside = False
        for name in CHANGES:
            monkeypatch.setattr(LocalFileSystem, name, self._counted(getattr(LocalFileSystem, name)))

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return change(*arguments, **options)
            if self.stop_at is not None and self.done >= self.stop_at:
                if self.before is None:
                    raise Killed
                self._inside, other, self.before = True, self.before, lambda: None
                other()
                self._inside = False
            self.done += 1
            return change(*arguments, **options)

        return counted

    def reset(self, stop_at: int | None = None, before: Callable[[], None] | None = None) -> None:
        self.done, self.stop_at, self.before, self._inside = 0, stop_at, before, False


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def written(path: Path) -> tuple[SavepointFolder, CheckpointMetadata]:
    """A savepoint with two files of its tasks, of which the metadata name one."""
    folder = SavepointFolder(str(path))
    place = folder.foreign_files(OWNER)
    handles = []
    for _ in range(2):
        with place.open() as output:
            handles.append(output.file.write([bytes(1 << 20)]))
    assert isinstance(handles[0], FileStateHandle)
    state = OperatorState(
        operator_id=OperatorID("1" * 32),
        name="source",
        uid=None,
        parallelism=1,
        max_parallelism=1,
        subtasks={},
        coordinator=handles[0],
    )
    return folder, msgspec.structs.replace(METADATA, operators=(state,))


def complete(path: Path) -> None:
    folder, metadata = written(path)
    with folder:
        folder.complete(metadata)


def is_whole_or_nothing(path: Path) -> bool:
    """True if a whole savepoint is there. Fails for anything else than that, or than nothing."""
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if not names:
        return False
    opened = open_snapshot(str(path))
    (operator,) = opened.metadata.operators
    assert isinstance(operator.coordinator, FileStateHandle)
    assert names == {METADATA_FILE, operator.coordinator.path}
    return True


def number_of_changes(tmp_path: Path, steps: Steps) -> int:
    steps.reset()
    complete(tmp_path / "first")
    return steps.done


def test_what_a_killed_writer_leaves_is_removed_or_a_savepoint(tmp_path: Path, steps: Steps) -> None:
    count, found = number_of_changes(tmp_path, steps), set()
    for step in range(count):
        path = tmp_path / str(step)
        steps.reset(step)
        with pytest.raises(Killed):
            complete(path)
        steps.reset()
        ForeignFiles.remove_unfinished(str(path), OWNER)
        found.add(is_whole_or_nothing(path))
    assert count > 5 and found == {True, False}


def test_whoever_removes_it_may_be_killed_as_well(tmp_path: Path, steps: Steps) -> None:
    for step in range(8):
        path = tmp_path / str(step)
        steps.reset()
        written(path)
        steps.reset(step)
        try:
            ForeignFiles.remove_unfinished(str(path), OWNER)
        except Killed:
            assert path.exists()
        steps.reset()
        ForeignFiles.remove_unfinished(str(path), OWNER)
        assert not path.exists() or not list(path.iterdir())


def test_a_writer_that_counts_as_lost_completes_or_is_removed(tmp_path: Path, steps: Steps) -> None:
    """The other process removes what it finds at any step of the writer, which lives and goes on."""
    found = set()
    for step in range(number_of_changes(tmp_path, steps)):
        path = tmp_path / str(step)
        steps.reset(step, lambda path=path: ForeignFiles.remove_unfinished(str(path), OWNER))  # type: ignore[misc]
        try:
            complete(path)
        except (OSError, YarrowError):
            assert not (path / METADATA_FILE).exists()
        steps.reset()
        ForeignFiles.remove_unfinished(str(path), OWNER)
        found.add(is_whole_or_nothing(path))
    assert found == {True, False}
