"""Who runs the tasks of a bounded job, Spark or workers of a TaskExecutor, and why. Pure.

Owner: any thread; the client asks when it has built the graph. An explicit BATCH means Spark. Must not look at files:
whoever asks knows how much the sources read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from yarrow.runtime.config.options import execution
from yarrow.runtime.config.options.execution import RuntimeMode
from yarrow.runtime.graph.states import BatchRunner

_UNITS: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class InputSize(NamedTuple):
    """How much a source reads."""

    #: The name of its operator.
    name: str
    #: About how many bytes; None = nobody knows before the job runs.
    bytes: int | None


class RunnerChoice(NamedTuple):
    """Who runs a bounded job."""

    runner: BatchRunner
    #: For people; a clause without a full stop.
    reason: str


def runner_of(mode: RuntimeMode, inputs: Sequence[InputSize], limit: int) -> RunnerChoice:
    """Chooses the runner of a bounded job.

    `limit`: most bytes of all `inputs` together that workers read (execution.batch.local-max-size).
    """
    key = execution.BATCH_LOCAL_MAX_SIZE.key
    if mode is not RuntimeMode.AUTOMATIC:
        return RunnerChoice(BatchRunner.SPARK, f"{execution.RUNTIME_MODE.key} is {mode.value}")
    if not limit:
        return RunnerChoice(BatchRunner.SPARK, f"{key} is 0")
    unknown = [each.name for each in inputs if each.bytes is None]
    if unknown:
        return RunnerChoice(BatchRunner.SPARK, f"nobody knows how much source '{unknown[0]}' reads")
    total = sum(each.bytes or 0 for each in inputs)
    if total > limit:
        return RunnerChoice(
            BatchRunner.SPARK, f"the input has {in_units(total)}, more than {in_units(limit)} ({key})"
        )
    return RunnerChoice(
        BatchRunner.LOCAL, f"the input has {in_units(total)}, not more than {in_units(limit)} ({key})"
    )


def in_units(size: int) -> str:
    """Bytes as people write them, as `3.5 MiB`."""
    for factor, unit in _UNITS:
        if size >= factor:
            number = size / factor
            return (
                f"{number:.0f} {unit}" if number >= 100 or number == int(number) else f"{number:.1f} {unit}"
            )
    return f"{size} bytes"
