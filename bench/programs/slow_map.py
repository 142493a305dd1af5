"""How late control is on Yarrow when a map takes 20 ms of CPU a row and rows never run out, parallelism 2.

Prints as the value the worst p99, in milliseconds, of four delays:
- cancel: from the client's call until the map is closed, all messages between included;
- timer: of processing-time timers in the task behind the map, which shares its thread;
- event: of mails from the source's enumerator to its readers, by the way the order for a checkpoint takes;
- barrier: from a mail to the source's task that sends a CheckpointBarrier until the task behind has passed it on.

The first three are of whole jobs, one a round; the barrier is injected into workers that are threads of this process,
because there is no public way to send one yet.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.worker_harness import WorkerHarness
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.worker.worker import WorkerThread
from yarrow.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.connectors import SourceReaderContext, SplitEnumeratorContext
from yarrow.datastream.connectors.number_seq import (
    NumberRange,
    NumberSequenceReader,
    NumberSequenceSource,
    even_ranges,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.runtime.data.elements import CheckpointBarrier

ROW_SECONDS = 0.020
EVENT_SECONDS = 0.037
TIMER_MS = 31
#: Seconds that a job runs before it is cancelled.
ROUND_SECONDS = 1.0
LIMIT_MS = 50.0


class Enumerator(OnRequestEnumerator[NumberRange]):
    """Sends every reader the time, again and again."""

    def __init__(self, context: SplitEnumeratorContext[NumberRange]) -> None:
        super().__init__(context, even_ranges(0, 1 << 60, context.parallelism))
        self._send_time()

    def _send_time(self) -> None:
        for subtask in self._context.registered_readers:
            self._context.send_event_to_reader(subtask, time.perf_counter_ns())
        self._context.call_later(EVENT_SECONDS, self._send_time)


class Reader(NumberSequenceReader):
    """Notes how late the enumerator's events are, and leaves the delays in a file."""

    def __init__(self, context: SourceReaderContext, folder: str) -> None:
        super().__init__(context)
        self._file = Path(folder, f"event-{context.subtask_index}.json")
        self._delays: list[float] = []

    def handle_source_event(self, event: int) -> None:
        self._delays.append((time.perf_counter_ns() - event) / 1e6)

    def close(self) -> None:
        self._file.write_text(json.dumps(self._delays))
        super().close()


class Numbers(NumberSequenceSource):
    """More integers than will ever be read."""

    def __init__(self, folder: str) -> None:
        super().__init__(0, (1 << 60) - 1)
        self._folder = folder

    def create_enumerator(
        self, context: SplitEnumeratorContext[NumberRange], checkpoint: Any = None
    ) -> Enumerator:
        return Enumerator(context)

    def create_reader(self, context: SourceReaderContext) -> Reader:
        return Reader(context, self._folder)


class SlowMap(MapFunction[int, tuple[int, int]]):
    """Keeps its core busy for 20 ms a row; notes when it is closed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._file = Path(self._folder, f"closed-{runtime_context.get_index_of_this_subtask()}.json")

    def map(self, value: int) -> tuple[int, int]:
        end = time.perf_counter() + ROW_SECONDS
        while time.perf_counter() < end:
            pass
        return value % 10, 1

    def close(self) -> None:
        self._file.write_text(json.dumps(time.perf_counter_ns()))


class Timers(KeyedProcessFunction[int, Any, Any]):
    """Sets a timer for each row and notes how late it fires."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: RuntimeContext) -> None:
        self._file = Path(self._folder, f"timer-{runtime_context.get_index_of_this_subtask()}.json")
        self._delays: list[float] = []

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + TIMER_MS)
        return ()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        self._delays.append(ctx.timer_service().current_processing_time() - timestamp)

    def close(self) -> None:
        self._file.write_text(json.dumps(self._delays))


def build(folder: str, parallelism: int) -> StreamExecutionEnvironment:
    """The job: numbers -> slow map -> by key -> timers."""
    options = Configuration.from_dict({"parallelism.default": str(parallelism)})
    env = StreamExecutionEnvironment.get_execution_environment(options)
    numbers = env.from_source(Numbers(folder), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG())
    mapped = numbers.map(SlowMap(folder), Types.TUPLE([Types.LONG(), Types.LONG()]))
    mapped.key_by(lambda pair: pair[0], Types.LONG()).process(Timers(folder))
    return env


def whole_jobs(rounds: int) -> dict[str, list[float]]:
    """Delays of cancel, timers and events."""
    delays: dict[str, list[float]] = defaultdict(list)
    with mini_cluster(task_executors=1, slots=2):
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="yarrow-bench-") as folder:
                client = build(folder, 2).execute_async("bench slow map")
                wait_until_running(client)
                time.sleep(ROUND_SECONDS)
                called = time.perf_counter_ns()
                client.cancel()
                wait_for_end(client)
                for name in os.listdir(folder):
                    found = json.loads(Path(folder, name).read_text())
                    kind = name.partition("-")[0]
                    if kind == "closed":
                        delays["cancel"].append((found - called) / 1e6)
                    else:
                        delays[kind] += found
    return delays


def wait_until_running(client: Any) -> None:
    """Returns when every task runs; a job counts as running before it has slots."""
    while True:
        details = client.get_job_details().result()
        states = {attempt.state.name for vertex in details.vertices for attempt in vertex.subtasks}
        if states == {"RUNNING"}:
            return
        time.sleep(0.02)


def wait_for_end(client: Any) -> None:
    """Returns when the job is cancelled: its result is an error then."""
    try:
        client.get_job_execution_result().result()
    except Exception as error:
        if client.get_job_status().result().name != "CANCELED":
            raise SystemExit(f"the job failed instead of being cancelled: {error}") from error


def barriers(count: int) -> list[float]:
    """Delays of barriers through both tasks of one worker."""
    with (
        tempfile.TemporaryDirectory(prefix="yarrow-bench-") as folder,
        WorkerHarness(1, processes=False) as harness,
    ):
        harness.deploy(build(folder, 1).get_job_graph("bench slow map"))
        pump = threading.Thread(target=answer, args=(harness,), daemon=True)
        pump.start()
        source, behind = tasks_of_the_worker()
        passed: dict[int, float] = {}
        arrived = threading.Event()
        cut = behind.checkpoints.cut

        def note(ready: ReadyCheckpoint, **options: Any) -> bool:
            is_cut = cut(ready, **options)
            passed[ready.barrier.checkpoint_id] = time.perf_counter()
            arrived.set()
            return is_cut

        behind.checkpoints.cut = note  # type: ignore[method-assign]
        time.sleep(0.5)
        delays = []
        for number in range(count):
            barrier = CheckpointBarrier(number, 0)
            arrived.clear()
            sent = time.perf_counter()
            source.post(lambda barrier=barrier: source.broadcast(barrier))  # type: ignore[misc]
            if not arrived.wait(30):
                raise SystemExit(f"barrier {number} did not arrive within 30 s")
            delays.append((passed[number] - sent) * 1000)
            # Not in step with the rows: 0 to 20 ms.
            time.sleep((number % 11) * 0.002)
        harness.cancel()
        pump.join(10)
    return delays


def answer(harness: WorkerHarness) -> None:
    """Routes the worker's messages until its tasks have ended."""
    left = 2
    while left:
        try:
            state = getattr(harness.next_message(time.perf_counter() + 60), "state", None)
        except (TimeoutError, ConnectionError):
            return
        left -= int(state is not None and state.is_terminal)


def tasks_of_the_worker() -> list[StreamTask]:
    """The tasks of the one worker of this process, upstream first, once all of them run."""
    worker = next(thread for thread in threading.enumerate() if isinstance(thread, WorkerThread))._worker
    while len(worker._thread.tasks) < 2:
        time.sleep(0.01)
    return list(reversed(worker._thread.tasks))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("rounds", type=int, help="jobs that are cancelled")
    arguments.add_argument("--barriers", type=int, default=120)
    given = arguments.parse_args()
    delays = whole_jobs(given.rounds)
    delays["barrier"] = barriers(given.barriers)
    result: dict[str, Any] = {}
    for kind, values in sorted(delays.items()):
        values.sort()
        at = {name: values[min(len(values) - 1, int(share * len(values)))] for name, share in SHARES.items()}
        result[kind] = {"samples": len(values)} | {name: round(value, 1) for name, value in at.items()}
    failed = [f"{kind}: p99 {found['p99']} ms" for kind, found in result.items() if found["p99"] > LIMIT_MS]
    failed += [
        f"{kind}: nothing was measured" for kind in ("cancel", "timer", "event") if not delays.get(kind)
    ]
    worst = max(found["p99"] for found in result.values())
    print(json.dumps({"value": worst, "unit": "ms", **result, "failed": failed}))


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}


if __name__ == "__main__":
    main()
