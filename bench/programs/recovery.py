"""Time from kill -9 of a slot's worker until every task of the job runs again: state restored, fixed delay 0.

The job is two keyed counts that share nothing: `--layout apart` gives them slot sharing groups of their own, and the
one whose worker lives must not restart; `--layout shared` puts both into one slot. The size is the number of kills; the
value printed is the slowest of them in seconds. Started from the root of the checkout as
`python -m bench.programs.recovery`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from functools import partial
from typing import Any

import psutil

from bench.programs.checkpoint_reports import CheckpointReports, wait_until
from bench.programs.rows import DroppingSink
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.runtime.graph.states import ExecutionState

RECORDS_PER_SECOND = 20_000
KEYS = 1000
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


def build(env: StreamExecutionEnvironment, layout: str, records: int) -> None:
    """Two regions, each a source, an exchange and a count whose last values are collected by an accumulator."""
    for region in ("left", "right"):
        source = DataGeneratorSource(
            lambda index: (index % KEYS, 1), records, RateLimiterStrategy.per_second(RECORDS_PER_SECOND), PAIR
        )
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), f"{region} source")
        group = region if layout == "apart" else "default"
        rows = rows.slot_sharing_group(group)
        sums = rows.key_by(lambda pair: pair[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
        sums.name(f"{region} count").sink_to(DroppingSink()).name(f"{region} sink")


def workers() -> list[int]:
    """Processes of slot workers below this one."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.name().startswith("yarrow-slot"):
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def attempts(client: Any) -> dict[str, tuple[int, ExecutionState]]:
    """Number and state of each task's attempt."""
    details = client.get_job_details().result()
    return {
        f"{vertex.name} {attempt.subtask}": (attempt.attempt_number, attempt.state)
        for vertex in details.vertices
        for attempt in vertex.subtasks
    }


def one_kill(client: Any, layout: str) -> tuple[float, list[str]]:
    """Kills one worker; seconds until all run again, and what was wrong."""
    before = attempts(client)
    pid = sorted(workers())[0]
    started = time.monotonic()
    os.kill(pid, signal.SIGKILL)

    def recovered() -> bool:
        now = attempts(client)
        restarted = [task for task in now if now[task][0] > before[task][0]]
        return bool(restarted) and all(state is ExecutionState.RUNNING for _, state in now.values())

    wait_until(recovered, 30, "recovery")
    seconds = time.monotonic() - started
    now = attempts(client)
    regions = {task.split()[0] for task in now if now[task][0] > before[task][0] and " " in task}
    failed = [f"regions {sorted(regions)} restarted"] if layout == "apart" and len(regions) > 1 else []
    return seconds, failed


def measure(kills: int, layout: str) -> None:
    """The job in this process's embedded cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as folder:
        options = {
            "parallelism.default": "1",
            "execution.checkpointing.interval": "200 ms",
            "execution.checkpointing.dir": folder,
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "1000",
            "restart-strategy.fixed-delay.delay": "0 s",
        }
        env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))
        build(env, layout, 1 << 40)
        client: Any = env.execute_async("bench recovery")
        reports = CheckpointReports(client)
        wait_until(lambda: reports.completed >= 2, 30, "a checkpoint")
        times, failed = [], []
        for _ in range(kills):
            target = reports.completed + 2
            seconds, wrong = one_kill(client, layout)
            times.append(seconds)
            failed += wrong
            wait_until(partial(_reached, reports, target), 30, "a checkpoint after the recovery")
        client.cancel().result()
    result = {"value": round(max(times), 3), "unit": "s", "times": [round(t, 3) for t in times]}
    print(json.dumps(result | {"failed": failed}))


def _reached(reports: CheckpointReports, target: int) -> bool:
    return reports.completed >= target


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("kills", type=int)
    arguments.add_argument("--layout", choices=("apart", "shared"), default="apart")
    given = arguments.parse_args()
    measure(given.kills, given.layout)


if __name__ == "__main__":
    main()
