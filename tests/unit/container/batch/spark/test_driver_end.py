"""The end of a driver's process: it may write Java's classes while its parent waits, and outlives no parent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from yarrow.container.batch.driver.batch_driver import DriverEnd
from yarrow.container.batch.spark.driver_main import may_keep_classes, remove_files, wait_for_forced_end
from yarrow.container.batch.spark.java.class_archive import IDLE_SECONDS
from yarrow.runtime.rpc.spark_driver_process import GRACE, LONGEST_END, WRITING_SECONDS


@dataclass
class Driver:
    """How a driver ends."""

    has_finished_run: bool
    finished: asyncio.Future[DriverEnd]


class Waits:
    """A clock that moves by waits, and a driver that works for some time."""

    def __init__(self, parent_lives_for: float = float("inf"), works_for: float = 0.0) -> None:
        self._parent_lives_for = parent_lives_for
        self._works_for = works_for
        self.waited = 0.0

    def until_forced_end(self) -> float:
        wait_for_forced_end(self.parent_lives, self.has_worked, self.wait)
        return self.waited

    def parent_lives(self) -> bool:
        return self.waited < self._parent_lives_for

    def has_worked(self) -> bool:
        return self.waited < self._works_for

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        assert self.waited < 2 * LONGEST_END, "it waits without end"


@pytest.mark.parametrize(
    ("has_finished_run", "end", "expected"),
    [
        (True, DriverEnd("released"), True),
        (True, DriverEnd("its parent has ended", orderly=False), False),
        (False, DriverEnd("released"), False),
        (True, None, False),
    ],
)
def test_classes_are_kept_after_a_job_whose_master_waits(
    has_finished_run: bool, end: DriverEnd | None, expected: bool
) -> None:
    async def body() -> bool:
        finished: asyncio.Future[DriverEnd] = asyncio.get_running_loop().create_future()
        if end is not None:
            finished.set_result(end)
        return may_keep_classes(Driver(has_finished_run, finished))

    assert asyncio.run(body()) is expected


def test_the_driver_gives_up_an_idle_java_then_itself_and_then_its_parent_kills_it() -> None:
    assert IDLE_SECONDS < Waits().until_forced_end() < GRACE


@pytest.mark.parametrize("works", [GRACE, WRITING_SECONDS])
def test_limits_count_from_the_last_sign_of_work(works: float) -> None:
    """Java writes for as long as it is seen to work, within its own limit, and its driver outlives it."""
    assert works + IDLE_SECONDS < Waits(works_for=works).until_forced_end() < works + GRACE


def test_signs_that_never_end_keep_no_driver_alive() -> None:
    assert WRITING_SECONDS + IDLE_SECONDS < Waits(works_for=float("inf")).until_forced_end() < LONGEST_END


@pytest.mark.parametrize("lives", [0.0, 5.0])
def test_a_driver_ends_soon_after_its_parent(lives: float) -> None:
    assert Waits(lives, works_for=WRITING_SECONDS).until_forced_end() - lives < 10.0


def test_a_driver_of_an_ending_parent_never_waits_longer_than_its_limit() -> None:
    assert Waits(parent_lives_for=GRACE - 2.0).until_forced_end() < GRACE
    late = Waits(parent_lives_for=LONGEST_END - 2.0, works_for=float("inf"))
    assert late.until_forced_end() < LONGEST_END


def test_what_a_driver_leaves_in_its_folder_goes(tmp_path: Path) -> None:
    (tmp_path / "local" / "blocks").mkdir(parents=True)
    (tmp_path / "local" / "blocks" / "one").touch()
    (tmp_path / "gateway").touch()
    remove_files(tmp_path)
    assert list(tmp_path.iterdir()) == []
    remove_files(tmp_path / "nowhere")
