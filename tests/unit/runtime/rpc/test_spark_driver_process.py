"""The end of a SparkDriver as its parent gives it: longer for one that works, and by force for one that does not."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from yarrow.runtime.common.child_process import ChildProcess
from yarrow.runtime.rpc import spark_driver_process
from yarrow.runtime.rpc.spark_driver_process import SignsOfWork, SparkDriverProcess

#: Ends when a file is there, whatever it is told.
_WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"


def end_of_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: int, grace: float | None) -> str:
    """How a driver ends whose last sign of work is that of the given number; it ends by itself with this one."""
    monkeypatch.setattr(spark_driver_process, "GRACE", 0.01)
    folder, gate = tmp_path / "folder", tmp_path / "gate"
    folder.mkdir()

    class Signs(SignsOfWork):
        asked = 0

        def came(self) -> bool:
            Signs.asked += 1
            if Signs.asked == works:
                gate.touch()
            if works:
                driver_side.give()
            return super().came()

    driver_side = SignsOfWork(folder)
    monkeypatch.setattr(spark_driver_process, "SignsOfWork", Signs)

    async def body() -> str:
        child = await ChildProcess.start((sys.executable, "-c", _WAITS, str(gate)), tmp_path / "errors")
        driver = SparkDriverProcess(child, str(folder))
        await driver.end(grace)
        assert not folder.exists()
        return await driver.wait()

    return asyncio.run(body())


def test_a_driver_that_works_has_the_time_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of_driver(tmp_path, monkeypatch, works=3, grace=None) == "released (exit status 0)"


def test_a_driver_that_does_not_work_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of_driver(tmp_path, monkeypatch, works=0, grace=None) == "released (killed by SIGKILL)"


def test_a_driver_that_gives_signs_for_ever_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_driver_process, "LONGEST_END", 0.05)
    end = end_of_driver(tmp_path, monkeypatch, works=500, grace=None)
    assert end == "released (killed by SIGKILL)"


def test_a_limit_of_the_parent_counts_whatever_the_driver_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert end_of_driver(tmp_path, monkeypatch, works=3, grace=0.01) == "released (killed by SIGKILL)"


def test_each_side_sees_the_signs_since_it_looked_last(tmp_path: Path) -> None:
    driver, watch, parent = (SignsOfWork(tmp_path) for _ in range(3))
    assert not parent.came()
    driver.give()
    assert watch.came() and not watch.came()
    driver.give()
    assert parent.came() and not parent.came()
    assert watch.came()


def test_a_folder_that_is_gone_is_no_work(tmp_path: Path) -> None:
    signs = SignsOfWork(tmp_path / "gone")
    signs.give()
    assert not signs.came()
