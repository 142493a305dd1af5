"""Files that a stage takes up once: what it has taken gets into place with its other outputs, or not at all."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from yarrow.batch import FileIntake, IfExists
from yarrow.batch.file_ledger import FileLedger
from yarrow.runtime.common.errors import InvalidProgramError


class Stage:
    """A stage whose attempts write into hidden folders, which replace the outputs when they are committed."""

    def __init__(self, folder: Path) -> None:
        self.input = folder / "in"
        self.input.mkdir()
        self.intake = FileIntake(str(self.input), "report")
        self._target = Path(self.intake.output("taken").path)
        self._attempts = 0
        self._written = self._target

    def add(self, *names: str) -> None:
        for name in names:
            path = self.input / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(name)

    def attempt(self) -> list[str]:
        """The names of the files that an attempt gets."""
        self._attempts += 1
        self._written = self._target.with_name(f".{self._target.name}.yarrow-{self._attempts}")
        return [
            str(Path(path).relative_to(self.input))
            for path in pickle.loads(pickle.dumps(self.intake)).take(str(self._written))
        ]

    def commit(self) -> None:
        if self._target.exists():
            self._target.rename(self._written.with_name(self._written.name + ".replaced"))
        self._written.rename(self._target)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_a_committed_run_has_taken_is_not_taken_again(stage: Stage) -> None:
    stage.add("a", "day=1/b")
    assert stage.attempt() == ["a", "day=1/b"]
    stage.commit()
    assert stage.attempt() == []
    stage.commit()
    stage.add("c", ".staging-1/.hidden")
    assert stage.attempt() == ["c"]
    stage.commit()
    assert FileLedger(str(stage.input), "report").taken() == {"a", "day=1/b", "c"}


def test_an_attempt_that_is_not_committed_takes_nothing(stage: Stage) -> None:
    stage.add("a")
    assert stage.attempt() == ["a"]
    stage.add("b")
    assert stage.attempt() == ["a", "b"]
    stage.commit()
    assert stage.attempt() == []


def test_files_that_are_gone_leave_the_record(stage: Stage) -> None:
    stage.add("a", "b")
    stage.attempt()
    stage.commit()
    (stage.input / "a").unlink()
    stage.attempt()
    stage.commit()
    assert FileLedger(str(stage.input), "report").taken() == {"b"}


def test_the_record_is_an_output_that_is_replaced(stage: Stage) -> None:
    output = stage.intake.output("taken")
    assert (output.name, output.if_exists) == ("taken", IfExists.REPLACE)
    assert output.path == str(stage.input / ".taken-report")


@pytest.mark.parametrize("path", ["", None])
def test_bad_paths_and_names_are_refused(path: str) -> None:
    with pytest.raises(InvalidProgramError, match="expected the path of a folder"):
        FileIntake(path, "report")
    with pytest.raises(InvalidProgramError, match="becomes part of a folder's name"):
        FileIntake("/data", "../report")
