"""The end of a driver's process: it may write Java's classes while its parent waits, and outlives no parent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from yarrow.container.batch.driver.batch_driver import DriverEnd
from yarrow.container.batch.spark.driver_main import may_keep_classes, remove_files, wait_for_forced_end
from yarrow.container.batch.spark.java.class_archive import WRITING_SECONDS
from yarrow.runtime.rpc.spark_driver_process import GRACE


@dataclass
class Driver:
    """How a driver ends."""

    has_finished_run: bool
    finished: asyncio.Future[DriverEnd]


class Waits:
    """A clock that moves by waits."""

    def __init__(self, parent_lives_for: float) -> None:
        self._parent_lives_for = parent_lives_for
        self.waited = 0.0

    def parent_lives(self) -> bool:
        return self.waited < self._parent_lives_for

    def wait(self, seconds: float) -> None:
        self.waited += seconds


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


def test_a_parent_that_lives_gives_java_the_time_to_write() -> None:
    waits = Waits(parent_lives_for=float("inf"))
    wait_for_forced_end(waits.parent_lives, waits.wait)
    assert WRITING_SECONDS < waits.waited < GRACE


@pytest.mark.parametrize("lives", [0.0, 5.0])
def test_a_driver_ends_soon_after_its_parent(lives: float) -> None:
    waits = Waits(parent_lives_for=lives)
    wait_for_forced_end(waits.parent_lives, waits.wait)
    assert waits.waited - lives < 10.0


def test_a_driver_of_an_ending_parent_never_waits_longer_than_its_limit() -> None:
    waits = Waits(parent_lives_for=GRACE - 2.0)
    wait_for_forced_end(waits.parent_lives, waits.wait)
    assert waits.waited < GRACE


def test_what_a_driver_leaves_in_its_folder_goes(tmp_path: Path) -> None:
    (tmp_path / "local" / "blocks").mkdir(parents=True)
    (tmp_path / "local" / "blocks" / "one").touch()
    (tmp_path / "gateway").touch()
    remove_files(tmp_path)
    assert list(tmp_path.iterdir()) == []
    remove_files(tmp_path / "nowhere")
