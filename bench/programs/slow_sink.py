"""Memory and back-pressure on Yarrow under a slow sink with the source at full speed, parallelism 2.

Prints by how many MB the resident memory of all processes together grew at most after the first ten seconds, and for
each task upstream of the sink the share of the looks at it in which it reported back-pressure. The job (`--job`)
has two exchanges before the sink. Started from the root of the checkout as `python -m bench.programs.slow_sink`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import SinkFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource

#: Seconds after which memory must not grow any more.
SETTLED = 10
#: Growth that counts as none: what the allocators of five processes do by themselves.
FLAT_MB = 8.0
#: Milliseconds a second of waiting from which on a task counts as back-pressured: Flink's "high" begins there.
PRESSED = 500.0
#: Seconds that the job has for its start, on a busy machine.
STARTED = 60
#: Subtasks before the sink.
UPSTREAM = 6
BACK_PRESSURED = "backPressuredTimeMsPerSecond"


class SlowSink(SinkFunction[Any]):
    """Takes a millisecond for a record, in a thread of its own as functions that wait ask for."""

    blocking = True

    def invoke(self, value: Any, context: Any) -> None:
        time.sleep(0.001)


def job() -> None:
    """Runs the job and prints once a second what its tasks report: back-pressured ms a second, by task and subtask."""
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"parallelism.default": "2"})
    )
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = env.from_source(NumberSequenceSource(0, 1 << 60), WatermarkStrategy.no_watermarks(), "integers")
    spread = numbers.map(lambda x: (x % 1000, 1), pair).rebalance().map(lambda row: (row[0], row[1]), pair)
    sums = spread.key_by(lambda row: row[0], Types.LONG()).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sums.rebalance().add_sink(SlowSink()).name("slow sink")
    client = env.execute_async("bench slow sink")
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(1)
            details = client.get_job_details().result()  # type: ignore[attr-defined]
            pressed = {
                f"{vertex.name} {attempt.subtask}": attempt.metrics[BACK_PRESSURED]
                for vertex in details.vertices
                for attempt in vertex.subtasks
                # Metrics come with heartbeats: at first there are none.
                if "slow sink" not in vertex.name and BACK_PRESSURED in attempt.metrics
            }
            print(json.dumps(pressed), flush=True)


def pressed_shares(looks: list[dict[str, float]]) -> dict[str, float]:
    """Of each task the share of looks with back-pressure, without the first third, in which buffers fill."""
    seen: dict[str, list[bool]] = defaultdict(list)
    reported = [look for look in looks if look]
    for look in reported[len(reported) // 3 :]:
        for task, value in look.items():
            seen[task].append(value >= PRESSED)
    return {task: round(sum(values) / len(values), 2) for task, values in seen.items()}


def measure(seconds: int) -> None:
    """The job in a process of its own, looked at from here."""
    from bench.process_trees import memory, running, tree

    looks: list[dict[str, float]] = []
    first_look = threading.Event()

    def read(lines: Any) -> None:
        # A line cut short by the end of the job, or the pipe closed meanwhile: the looks before count.
        with contextlib.suppress(ValueError):
            for line in lines:
                looks.append(json.loads(line))
                first_look.set()

    with running([sys.executable, __file__, "0", "--job"]) as process:
        reader = threading.Thread(target=read, args=(process.stdout,), daemon=True)
        reader.start()
        # Until the job runs there are not all of its processes, and their memory would count as growth.
        first_look.wait(STARTED)
        started = time.monotonic()
        sizes: list[tuple[float, int]] = []
        while time.monotonic() - started < seconds and process.poll() is None:
            time.sleep(1)
            sizes.append((time.monotonic() - started, memory(tree(process.pid), "Rss")))
        if process.poll() is not None:
            raise SystemExit(f"the job with the slow sink ended with {process.returncode}")
    settled = [size for at, size in sizes if at >= min(SETTLED, seconds / 2)]
    growth = (max(settled) - settled[0]) / 1e6
    shares = pressed_shares(looks)
    failed = [
        f"{task}: back-pressure in {share:.0%} of the looks" for task, share in shares.items() if share < 0.9
    ]
    if growth > FLAT_MB:
        failed.append(f"memory grew by {growth:.1f} MB")
    if len(shares) < UPSTREAM:
        failed.append("not all tasks upstream reported")
    result = {"value": round(growth, 1), "unit": "MB", "memory_mb": round(settled[0] / 1e6), "failed": failed}
    print(json.dumps(result | {"back_pressured": shares}))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("seconds", type=int)
    arguments.add_argument("--job", action="store_true", help="run the job itself until Ctrl-C")
    given = arguments.parse_args()
    if given.job:
        job()
    else:
        measure(given.seconds)


if __name__ == "__main__":
    main()
