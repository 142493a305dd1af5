"""Time from kill -9 of a slot's worker until every task of the job runs again: state restored, fixed delay 0.

The job is two keyed counts that share nothing: `--layout apart` gives them slot sharing groups of their own, and the
one whose worker lives must not restart; `--layout shared` puts both into one slot. Files hold the output, which must be
exact at the end. The size is the number of kills; the value printed is the slowest of them in seconds. Started from the
root of the checkout as `python -m bench.programs.recovery`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench.programs.checkpoint_reports import CheckpointReports, wait_until
from yarrow.common import Configuration, Encoder, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.connectors.file_system import FileSink
from yarrow.runtime.graph.states import ExecutionState

RECORDS_PER_SECOND = 20_000
KEYS = 1000
ROW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
REGIONS = ("left", "right")


def build(env: StreamExecutionEnvironment, layout: str, folder: str) -> None:
    """Two regions, each a source of (key, 1, number), an exchange, a running count, and files of what it put out."""
    for region in REGIONS:
        source = DataGeneratorSource(
            lambda index: (index % KEYS, 1, index),
            1 << 40,
            RateLimiterStrategy.per_second(RECORDS_PER_SECOND),
            ROW,
        )
        rows = env.from_source(source, WatermarkStrategy.no_watermarks(), f"{region} source")
        rows = rows.slot_sharing_group(region if layout == "apart" else "default")
        counts = rows.key_by(lambda row: row[0], Types.LONG()).reduce(lambda a, b: (b[0], a[1] + b[1], b[2]))
        files = FileSink.for_row_format(str(Path(folder, region)), Encoder.simple_string_encoder()).build()
        counts.name(f"{region} count").sink_to(files).name(f"{region} sink")


def wrong_output(folder: str) -> list[str]:
    """What is not as without any failure: the n-th count of a key stands beside the n-th number of that key, once."""
    wrong = []
    for region in REGIONS:
        paths = [
            path for path in Path(folder, region).rglob("*") if path.is_file() and path.name[0] not in "._"
        ]
        lines = (line for path in paths for line in path.read_text().splitlines())
        rows = [tuple(map(int, line.strip("()").split(","))) for line in lines]
        counts: dict[int, list[int]] = {key: [] for key in range(KEYS)}
        for key, count, number in rows:
            if number != key + KEYS * (count - 1):
                wrong.append(f"{region}: count {count} of key {key} at number {number}")
            counts[key].append(count)
        for key, found in counts.items():
            if sorted(found) != list(range(1, len(found) + 1)):
                wrong.append(f"{region}: key {key} has {len(found)} counts, not each of them once")
        if not rows:
            wrong.append(f"{region}: no output")
    return wrong[:5]


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
    killed = min(workers())
    started = time.monotonic()
    os.kill(killed, signal.SIGKILL)

    def recovered() -> bool:
        now = attempts(client)
        restarted = [task for task in now if now[task][0] > before[task][0]]
        return bool(restarted) and all(state is ExecutionState.RUNNING for _, state in now.values())

    others = [pid for pid in workers() if pid != killed]
    wait_until(recovered, 30, "recovery", pause=0.005)
    seconds = time.monotonic() - started
    now = attempts(client)
    regions = {
        region for region in REGIONS for task in now if region in task and now[task][0] > before[task][0]
    }
    failed = []
    if layout == "apart" and (len(regions) > 1 or not set(others) <= set(workers())):
        failed.append(f"regions {sorted(regions)} restarted, or lost their worker")
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
        build(env, layout, folder)
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
        client.stop_with_savepoint(False, folder).result()
        client.get_job_execution_result().result()
        failed += wrong_output(folder)
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
