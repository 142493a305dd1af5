"""Runs of an operator that a crash interrupts, for tests that compare them with a run without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.datastream import DataStream
from yarrow.testing.operator_harness import OperatorHarness

#: A row (None = none), its time, and the watermark behind it (None = none).
TimedStep = tuple[Any, int, int | None]


def feed(harness: OperatorHarness, steps: Sequence[TimedStep], reached: int) -> int:
    """Push rows and watermarks that rise; returns the last watermark."""
    for row, time, watermark in steps:
        if row is not None:
            harness.push(row, timestamps=[time])
        if watermark is not None and watermark > reached:
            reached = watermark
            harness.watermark(reached)
    harness.run()
    return reached


def outputs_over_a_crash(
    build: Callable[[DataStream], Any],
    row_type: TypeInformation,
    steps: Sequence[TimedStep],
    cut: int,
    backend: str,
    *,
    outputs: int,
) -> list[list[Any]]:
    """What so many outputs get, from a snapshot behind `cut` steps on once more. The last watermark is 1000."""
    configuration = {"state.backend.type": backend}
    with OperatorHarness(build, types=[row_type], configuration=configuration) as harness:
        reached = feed(harness, steps[:cut], -1)
        snapshot = harness.snapshot()
        found = [harness.outputs(index) for index in range(outputs)]
        # What follows the snapshot is lost by the crash.
        feed(harness, steps[cut:], reached)
        with harness.restarted(snapshot) as again:
            feed(again, steps[cut:], reached)
            again.watermark(1000)
            again.run()
            return [before + again.outputs(index) for index, before in enumerate(found)]
