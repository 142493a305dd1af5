"""A fault that the kit of connectors plans meets a checkpoint with rows, or does not count."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from yarrow.testing.fault_plan import ArmedByHand, FaultAction, FaultPlan

BEFORE, AFTER = "sink.before-prepare", "sink.after-prepare"


def planner(point: str, folder: Path) -> ArmedByHand:
    made = ArmedByHand(FaultPlan(0, point, FaultAction.KILL), str(folder))
    made.arm()
    return made


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_a_sink_without_rows_since_the_last_checkpoint_is_passed_by(point: str, tmp_path: Path) -> None:
    made = planner(point, tmp_path)
    for checkpoint, rows in ((1, 0), (2, 0)):
        assert not made.fires(BEFORE, {"checkpoint_id": checkpoint, "rows": rows})
        assert not made.fires(AFTER, {"checkpoint_id": checkpoint, "rows": rows})
    assert made.fires(point, {"checkpoint_id": 3, "rows": 5})


def test_a_worker_whose_sink_had_no_rows_is_passed_by_though_another_had_some(tmp_path: Path) -> None:
    point = "checkpoint.before-notify"
    first, second = planner(point, tmp_path), planner(point, tmp_path)
    assert not first.fires(BEFORE, {"checkpoint_id": 1, "rows": 5})
    assert not second.fires(point, {"checkpoint_id": 1})
    assert first.fires(point, {"checkpoint_id": 1})


def test_the_master_fires_where_some_worker_had_rows(tmp_path: Path) -> None:
    point = "coordinator.before-notify"
    master, worker = planner(point, tmp_path), planner(point, tmp_path)
    assert not master.fires(point, {"checkpoint_id": 1})
    assert not worker.fires(BEFORE, {"checkpoint_id": 2, "rows": 5})
    assert not master.fires(point, {"checkpoint_id": 1})
    assert master.fires(point, {"checkpoint_id": 2})


def test_other_points_need_no_rows(tmp_path: Path) -> None:
    assert planner("checkpoint.before-snapshot", tmp_path).fires(
        "checkpoint.before-snapshot", {"checkpoint_id": 1}
    )


def test_a_held_process_stands_still_until_it_may_go_on(tmp_path: Path) -> None:
    point = "checkpoint.before-snapshot"
    test = ArmedByHand(FaultPlan(0, point, FaultAction.HOLD, seconds=600.0), str(tmp_path))
    test.arm()
    held = ArmedByHand(test.plan, str(tmp_path))
    process = threading.Thread(target=held.reached, args=(point, {"checkpoint_id": 1}))
    assert test.pid == 0
    process.start()
    while not test.pid:
        process.join(0.01)
    assert (test.pid, test.has_gone_on, process.is_alive()) == (os.getpid(), False, True)
    test.let_go()
    process.join(60.0)
    assert test.has_gone_on and not process.is_alive()


def test_a_held_process_is_not_held_for_ever(tmp_path: Path) -> None:
    point = "checkpoint.before-snapshot"
    held = ArmedByHand(FaultPlan(0, point, FaultAction.HOLD, seconds=0.05), str(tmp_path))
    held.arm()
    held.reached(point, {"checkpoint_id": 1})
    assert held.has_fired and held.has_gone_on
