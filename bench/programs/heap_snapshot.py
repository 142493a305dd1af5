"""Checkpoints of a large heap under load: keyed lists, parallelism 2; the size is the number of keys.

The value printed is the longest gap in ms between two calls of the keyed function of a subtask while a checkpoint is
taken, garbage collection included; beside it the rate meanwhile as a share of the rate without, named as failed
below 40 %. Started as `python -m bench.programs.heap_snapshot` from the root of the checkout.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.programs.checkpoint_reports import CheckpointReports, cancel, wait_until
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.datastream.state import ValueState, ValueStateDescriptor

#: Calls between two looks at the clock for the rate.
STEP = 20_000


class Listing(KeyedProcessFunction[int, Any, Any]):
    """Keeps a list of the last three numbers of each key; notes gaps between calls and times of every so many calls."""

    def __init__(self, keys: int, folder: str) -> None:
        self._keys = keys
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._state: ValueState[Any] = runtime_context.get_state(
            ValueStateDescriptor("last", Types.LIST(Types.LONG()))
        )
        self._calls = 0
        self._last = time.perf_counter()
        subtask = runtime_context.get_index_of_this_subtask()
        self._log = Path(self._folder, f"gaps-{subtask}").open("w", buffering=1)  # noqa: SIM115

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        now = time.perf_counter()
        gap, self._last = now - self._last, now
        self._calls += 1
        if gap > 0.02:
            print("gap", time.time(), gap, file=self._log)
        if self._calls % STEP == 0:
            print("calls", time.time(), self._calls, file=self._log)
        self._state.update([*(self._state.value() or ())[-2:], value])
        return ()


def measure(keys: int) -> None:
    """The job in this process's embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-heap-") as folder:
        options = {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "1 h",
            "execution.checkpointing.dir": folder,
            "taskmanager.memory.process.size": "16 gb",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        numbers = env.from_source(
            NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "numbers"
        )
        keyed = numbers.key_by(lambda x, n=keys: x * 1_299_709 % n, Types.LONG())  # type: ignore[misc]
        keyed.process(Listing(keys, folder)).print()
        client: Any = env.execute_async("bench heap snapshot")
        reports = CheckpointReports(client)
        half = keys / 2 * 1.05
        wait_until(lambda: min(calls(folder)) >= half, 280, "every key", pause=0.5)
        before = sum(calls(folder)), time.time()
        time.sleep(8)
        alone = (sum(calls(folder)) - before[0]) / (time.time() - before[1])
        started = time.time()
        reports.trigger()
        wait_until(lambda: reports.completed >= 1, 280, "the checkpoint", pause=0.1)
        ended = time.time()
        during = rate_between(folder, started, ended)
        gaps = [gap for at, gap in noted(folder, "gap") if started <= at <= ended + 2]
        cancel(client)
    share = during / alone if alone else 0.0
    failed = [f"{share:.0%} of the rate during the checkpoint"] if share < 0.4 else []
    result = {"value": round(max(gaps, default=0.0) * 1000, 1), "unit": "ms", "share": round(share, 2)}
    result["gaps_over_50_ms"] = sum(gap > 0.05 for gap in gaps)
    print(json.dumps(result | {"seconds": round(ended - started, 1), "rate": round(alone), "failed": failed}))


def noted(folder: str, kind: str) -> list[tuple[float, float]]:
    """(time, value) of all lines of a kind."""
    found = []
    for path in Path(folder).glob("gaps-*"):
        for line in path.read_text().splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[0] == kind:
                found.append((float(parts[1]), float(parts[2])))
    return found


def calls(folder: str) -> list[float]:
    """Calls so far, by subtask."""
    totals = []
    for path in sorted(Path(folder).glob("gaps-*")):
        lines = [line.split() for line in path.read_text().splitlines() if line.startswith("calls")]
        totals.append(float(lines[-1][2]) if lines and len(lines[-1]) == 3 else 0.0)
    return totals if len(totals) == 2 else [0.0, 0.0]


def rate_between(folder: str, started: float, ended: float) -> float:
    """Calls a second of both subtasks together."""
    counted = sum(STEP for at, _ in noted(folder, "calls") if started <= at <= ended)
    return counted / (ended - started)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("keys", type=int)
    measure(arguments.parse_args().keys)


if __name__ == "__main__":
    main()
