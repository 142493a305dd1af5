"""One task thread a worker against a thread per task: rate, latency of records, latency of barriers at full load.

    python -m bench.task_threads [--rounds 3] [--records 3000000] [--rate 100000] [--seconds 6]

Prints one JSON line for each value of execution.task-threads; the modes take turns. On a machine that does other work,
CPU time says more than the clock: a process with more threads gets more of the cores. The job is the keyed one:
integers -> pair -> by key -> running sum -> filter -> a sink, two tasks a worker. Rate and latency are of two worker
processes; barriers are injected into a worker that is a thread of this process, as there is no public way to send one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path

from bench.programs.latency import RECORD, LatencySink, percentiles, stamped
from bench.programs.rows import DroppingSink, declared_pairs
from tests.support.worker_harness import WorkerHarness
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.worker.worker import WorkerThread
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.data.elements import CheckpointBarrier, ControlElement
from yarrow.runtime.graph.job_graph import JobGraph

MODES = ("shared", "per-task")
#: The switch interval of worker processes, for the worker that is a thread here.
SWITCH_SECONDS = 0.0005
WARM_UP_SECONDS = 2.0
BARRIERS = 200


def environment(parallelism: int) -> StreamExecutionEnvironment:
    """An environment for graphs that are deployed by hand."""
    options = {"parallelism.default": str(parallelism), "execution.buffer-timeout.interval": "10 ms"}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(options))


def sums(records: int, parallelism: int) -> JobGraph:
    """The keyed job, as fast as it goes."""
    env = environment(parallelism)
    source = NumberSequenceSource(0, records - 1)
    integers = env.from_source(source, WatermarkStrategy.no_watermarks(), "integers")
    declared_pairs(integers).sink_to(DroppingSink())
    return env.get_job_graph("task threads")


def stamps(folder: str, records: int, rate: int) -> JobGraph:
    """The keyed job at a fixed rate, with the moment in each record at which it was made."""
    env = environment(2)
    source = DataGeneratorSource(stamped, records, RateLimiterStrategy.per_second(rate), RECORD)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "stamped")
    added = stream.key_by(lambda row: row[0], Types.LONG()).reduce(
        lambda a, b: (a[0], a[1] + b[1], b[2], b[3])
    )
    added.sink_to(LatencySink(folder, records, float(rate), WARM_UP_SECONDS))
    return env.get_job_graph("task threads")


def harness(mode: str, workers: int, *, processes: bool = True) -> WorkerHarness:
    """Workers that run tasks in this mode."""
    return WorkerHarness(workers, processes=processes, configuration={"execution.task-threads": mode})


def seconds_of(mode: str, records: int) -> tuple[float, float]:
    """How long two fresh workers take, by the clock and in CPU time of both."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with harness(mode, 2) as workers:
        wall = workers.run(sums(records, 2), timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rates_of(mode: str, records: int) -> tuple[float, float]:
    """Records a second of wall time and of CPU time: slopes between two sizes, so that start and end cancel out."""
    few = records // 4
    (wall, cpu), (few_wall, few_cpu) = seconds_of(mode, records), seconds_of(mode, few)
    return (records - few) / (wall - few_wall), (records - few) / (cpu - few_cpu)


def latency_of(mode: str, rate: int, seconds: float) -> dict[str, float]:
    """Percentiles in milliseconds, from the source to the sink."""
    records = int(rate * (seconds + WARM_UP_SECONDS)) // 2 * 2
    with tempfile.TemporaryDirectory(prefix="yarrow-bench-") as folder, harness(mode, 2) as workers:
        workers.run(stamps(folder, records, rate), timeout=300)
        found = [json.loads(Path(folder, name).read_text())[0] for name in sorted(os.listdir(folder))]
    return percentiles(found)


def barriers_of(mode: str) -> list[float]:
    """Milliseconds from a mail to the source's task until the task behind has passed the barrier on."""
    with harness(mode, 1, processes=False) as workers:
        workers.deploy(sums(1 << 60, 1))
        pump = threading.Thread(target=take_messages, args=(workers, 2), daemon=True)
        pump.start()
        source, behind = running_tasks()
        arrived = threading.Event()
        passed: dict[int, float] = {}
        broadcast = behind.checkpoints._broadcast

        def note(element: ControlElement) -> None:
            broadcast(element)
            if isinstance(element, CheckpointBarrier):
                passed[element.checkpoint_id] = time.perf_counter()
                arrived.set()

        behind.checkpoints._broadcast = note
        time.sleep(1.0)
        delays = []
        for number in range(1, BARRIERS + 1):
            barrier = CheckpointBarrier(number, 0)
            arrived.clear()
            sent = time.perf_counter()
            source.post(lambda barrier=barrier: source.broadcast(barrier))  # type: ignore[misc]
            if not arrived.wait(30):
                raise SystemExit(f"{mode}: barrier {number} did not arrive within 30 s")
            delays.append((passed[number] - sent) * 1000)
            # Not in step with the slices of 5 ms.
            time.sleep((number % 11) * 0.001)
        workers.cancel()
        pump.join(10)
    return delays


def take_messages(workers: WorkerHarness, tasks: int) -> None:
    """Routes the worker's messages until its tasks have ended."""
    while tasks:
        try:
            state = getattr(workers.next_message(time.perf_counter() + 60), "state", None)
        except (TimeoutError, ConnectionError):
            return
        tasks -= int(state is not None and state.is_terminal)


def running_tasks() -> tuple[StreamTask, StreamTask]:
    """Source and consumer in the one worker of this process, once both run."""
    worker = next(thread for thread in threading.enumerate() if isinstance(thread, WorkerThread))._worker
    while True:
        tasks = [running.task for running in list(worker._jobs._running.values())]
        if len(tasks) == 2 and all(task.records_in for task in tasks):
            source = next(task for task in tasks if task.chain.source is not None)
            return source, next(task for task in tasks if task is not source)
        time.sleep(0.01)


def share(values: list[float], part: float) -> float:
    """A percentile."""
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2)


def main() -> None:
    """Measures both modes in turn and prints a line for each."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--records", type=int, default=3_000_000)
    arguments.add_argument("--rate", type=int, default=100_000)
    arguments.add_argument("--seconds", type=float, default=6.0)
    given = arguments.parse_args()
    rates: dict[str, list[tuple[float, float]]] = defaultdict(list)
    latencies: dict[str, list[dict[str, float]]] = defaultdict(list)
    barriers: dict[str, list[float]] = defaultdict(list)
    sys.setswitchinterval(SWITCH_SECONDS)
    for number in range(given.rounds):
        for mode in MODES if number % 2 == 0 else MODES[::-1]:
            rates[mode].append(rates_of(mode, given.records))
            latencies[mode].append(latency_of(mode, given.rate, given.seconds))
            barriers[mode] += barriers_of(mode)
    for mode in MODES:
        middle = {
            name: round(statistics.median(found[name] for found in latencies[mode]), 2)
            for name in ("p50", "p99", "max")
        }
        line = {
            "case": "task-threads",
            "mode": mode,
            "records_per_second": round(statistics.median(wall for wall, _ in rates[mode])),
            "records_per_cpu_second": round(statistics.median(cpu for _, cpu in rates[mode])),
            "rates": [[round(wall), round(cpu)] for wall, cpu in rates[mode]],
            "latency_ms": middle,
            "latency_p99_ms": [found["p99"] for found in latencies[mode]],
            "barrier_ms": {
                "samples": len(barriers[mode]),
                "p50": share(barriers[mode], 0.5),
                "p99": share(barriers[mode], 0.99),
                "max": share(barriers[mode], 1.0),
            },
            "load_average": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
