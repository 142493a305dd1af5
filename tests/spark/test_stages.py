"""Stages of a plan on Spark, in one driver: what leaves them is what a plain loop over the same records gives."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import http.client
import os
import re
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.support.batch_runner import collecting_graph
from tests.support.spark_driver import LIMIT, PAGES_BASE, SECRET, DriverUnderTest, spark_driver
from tests.unit.container.batch.test_sinks import Refusing
from tests.unit.runtime.graph.programs import environment
from yarrow.common import WatermarkStrategy
from yarrow.common.accumulators import IntCounter
from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.worker.last_words import present
from yarrow.datastream import MapFunction, OutputTag, ProcessFunction, RuntimeContext
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.graph.job_graph import encode_job_graph
from yarrow.runtime.rpc.messages import CollectRows

pytestmark = pytest.mark.spark

ODD = OutputTag("odd")
NO_WATERMARKS: Any = WatermarkStrategy.no_watermarks()


class Parted(ProcessFunction[int, int]):
    """Sends odd numbers aside."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield (ODD, value) if value % 2 else value


class Counted(MapFunction[int, int]):
    """Counts what it sees."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = IntCounter()
        runtime_context.add_accumulator("seen", self.seen)

    def map(self, value: int) -> int:
        self.seen.add(1)
        return value


def divide(value: int) -> float:
    return 1 / (value - 700)


def test_records_of_a_key_meet_in_one_partition(driver: DriverUnderTest) -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 20_000), NO_WATERMARKS, "numbers")
    sums = (
        numbers.map(lambda n: (n % 100, n))
        .key_by(lambda pair: pair[0])
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    outcome = driver.run(collecting_graph(env, sums))
    expected: Counter[int] = Counter()
    for number in range(1, 20_001):
        expected[number % 100] += number
    assert dict(outcome.collected()) == expected
    assert len(outcome.collected()) == 100


def test_a_stage_that_several_read_runs_once(driver: DriverUnderTest) -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(0, 999), NO_WATERMARKS, "numbers").map(Counted())
    parted = numbers.rebalance().process(Parted())
    odd = parted.get_side_output(ODD).rebalance().map(lambda n: -n)
    even = parted.rebalance().map(lambda n: n * 10)
    graph = collecting_graph(env, even.union(odd))
    outcome = driver.run(graph)
    assert sorted(outcome.collected()) == sorted(-n if n % 2 else n * 10 for n in range(1000))
    seen = [result.accumulators["seen"] for result in outcome.subtasks if "seen" in result.accumulators]
    assert sum(seen) == 1000
    # Each subtask of each stage has told its result once.
    subtasks = [(result.vertex_id, result.subtask) for result in outcome.subtasks]
    wanted = [(vertex.id, subtask) for vertex in graph.vertices for subtask in range(vertex.parallelism)]
    assert sorted(subtasks) == sorted(wanted)


def process_of_task(value: int) -> tuple[int, bool]:
    """The process, and whether it has imported pandas."""
    return os.getpid(), "pandas" in sys.modules


#: Runs in which Spark uses an idle process again.
RUNS = 12


def test_processes_of_tasks_are_used_again_and_stay_small(tmp_path: Path) -> None:
    former: set[int] = set()
    # A driver of its own: functions of other tests import pandas.
    with spark_driver(tmp_path) as driver:
        for _ in range(RUNS):
            env = environment(2)
            numbers = env.from_source(NumberSequenceSource(1, 100), NO_WATERMARKS, "numbers")
            outcome = driver.run(collecting_graph(env, numbers.map(process_of_task)))
            assert outcome.failure is None, outcome.failure.stacktrace
            assert not any(imported for _, imported in outcome.collected())
            processes = {pid for pid, _ in outcome.collected()}
            if processes & former:
                return
            former |= processes
    # A process that had not read its input to the end would have ended.
    raise AssertionError(f"each run had other processes: {former}")


def test_partitions_without_records_run_too(driver: DriverUnderTest) -> None:
    env = environment(2)
    ones = env.from_collection([7, 7, 7]).key_by(lambda n: n).reduce(lambda a, b: a + b).set_parallelism(4)
    graph = collecting_graph(env, ones)
    outcome = driver.run(graph)
    assert outcome.collected() == [21]
    assert {stage.state.value for stage in outcome.stages.values()} == {"FINISHED"}
    assert all(stage.tasks_done == stage.tasks_total for stage in outcome.stages.values())


def test_what_is_printed_comes_once_in_order_of_subtasks(driver: DriverUnderTest) -> None:
    env = environment(2)
    stream = env.from_collection(range(2000)).rebalance()
    # The stage prints and feeds another one: its text travels with that one's rows.
    shown = stream.map(lambda n: n)
    shown.print("out")
    shown.rebalance().map(lambda n: -n).print("last")
    outcome = driver.run(env.get_job_graph())
    assert outcome.failure is None
    text = "".join(output.text for output in outcome.printed)
    for name, sign in (("out", 1), ("last", -1)):
        lines = [line for line in text.splitlines() if line.startswith(name)]
        assert [line[len(name) + 1] for line in lines] == ["1"] * 1000 + ["2"] * 1000
        assert sorted(int(line.partition("> ")[2]) for line in lines) == sorted(sign * n for n in range(2000))


def test_progress_and_counts(driver: DriverUnderTest) -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 5000), NO_WATERMARKS, "numbers")
    outcome = driver.run(collecting_graph(env, numbers.rebalance().map(lambda n: n)))
    assert outcome.finished is not None
    source, mapped, *_ = outcome.finished.stages
    assert (source.tasks_total, source.tasks_done, source.records_out) == (2, 2, 5000)
    assert (mapped.records_in, mapped.state.value) == (5000, "FINISHED")
    assert source.started_ms and source.ended_ms >= source.started_ms
    assert all(states[-1] == "FINISHED" for states in outcome.states.values())
    metrics = {(result.vertex_id, result.subtask): result.metrics for result in outcome.subtasks}
    assert sum(metrics[source.vertex_id, subtask]["numRecordsOut"] for subtask in (0, 1)) == 5000


def test_a_key_with_far_more_records_is_named(driver: DriverUnderTest) -> None:
    env = environment(2, {"execution.batch.combine": "false"})
    numbers = env.from_source(NumberSequenceSource(1, 150_000), NO_WATERMARKS, "numbers")
    keyed = numbers.key_by(lambda n: n if n % 100 == 0 else -1)
    outcome = driver.run(collecting_graph(env, keyed.reduce(max).name("most")))
    assert outcome.finished is not None
    found = [stage.large_key_group for stage in outcome.finished.stages if stage.large_key_group]
    (large,) = found
    assert (large.key, large.key_group) == ("-1", key_group_of(-1, 128))
    assert 148_500 <= large.records < 149_000 and large.mean_records < 100
    assert "most" in large.vertex_name


def test_a_large_graph_and_files_come_from_the_blob_store(driver: DriverUnderTest) -> None:
    env = environment(1)
    graph = collecting_graph(env, env.from_collection([1, 2]).map(lambda n: n + 1))
    key = hashlib.sha256(encode_job_graph(graph)).hexdigest()
    assert driver.submit(graph, key)[1].result(LIMIT).collected() == [2, 3]


def test_a_broken_function_fails_the_job_with_the_users_traceback(driver: DriverUnderTest) -> None:
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 1000), NO_WATERMARKS, "numbers")
    outcome = driver.run(collecting_graph(env, numbers.rebalance().map(divide).name("divide")))
    cause = outcome.failure
    assert cause is not None
    assert cause.exception_name == "builtins.ZeroDivisionError"
    assert (cause.operator_name, cause.record) == ("divide", "700")
    first, second = cause.stacktrace.splitlines()[:2]
    assert first == "Traceback (most recent call last):"
    assert __file__ in second and "in divide" in second
    assert "pyspark" not in cause.stacktrace and "py4j" not in cause.stacktrace
    assert outcome.finished is None
    assert sum(stage.tasks_failed for stage in outcome.stages.values()) <= 2


def test_results_may_be_longer_than_a_message(driver: DriverUnderTest, tmp_path: Path) -> None:
    """A line of text and the committables of a subtask, both above rpc.message.max-size."""
    env = environment(2)
    # A committable is the list of all rows of a subtask.
    texts = env.from_collection(["x", "y", "z"]).rebalance().map(lambda name: name * (6 << 20))
    texts.print("out")
    texts.sink_to(Refusing(tmp_path, 0))
    outcome = driver.run(env.get_job_graph())
    assert outcome.failure is None
    text = "".join(output.text for output in outcome.printed)
    assert sorted(len(line) for line in text.splitlines()) == [len("out:1> ") + (6 << 20)] * 3
    assert len(outcome.committables) > 2
    committed = (tmp_path / "committed").read_text().split()
    assert sorted((line[0], len(line)) for line in committed) == [(name, 6 << 20) for name in "xyz"]


def leave(value: int) -> int:
    if value == 7:
        os._exit(3)
    return value


def crash(value: int) -> int:
    return value if value != 7 else len(ctypes.string_at(0))


def be_killed(value: int) -> int:
    """Ends its process with SIGKILL, which leaves no time for a word, when it has been looked at."""
    words = present()
    if value == 7 and words is not None:
        # A look that begins now sees this record, and the next one comes when that was told.
        seen = words.looks
        while words.looks < seen + 2:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.parametrize(
    ("culprit", "how"),
    [
        (leave, "user code ended the process with os._exit(3)"),
        (crash, "its native code crashed (SIGSEGV"),
        (be_killed, "has died without a word"),
    ],
)
def test_a_process_that_dies_names_operator_and_record(
    driver: DriverUnderTest, culprit: Callable[[int], int], how: str
) -> None:
    env = environment(1)
    numbers = env.from_collection(list(range(10))).rebalance()
    rows = numbers.map(lambda n: n).name("first").map(culprit).name("second").map(lambda n: n).name("third")
    outcome = driver.run(collecting_graph(env, rows))
    failure = outcome.failure
    assert failure is not None
    assert failure.exception_name.endswith("TaskLostError")
    assert (failure.operator_name, failure.record) == ("second", "7")
    assert how in failure.message and "operator 'second' with the record 7" in failure.message
    assert "(subtask 1/1)" in failure.message
    # The driver takes the next job.
    env = environment(1)
    assert driver.run(collecting_graph(env, env.from_collection([1]))).collected() == [1]


def test_an_enumerator_that_fails_is_the_cause(driver: DriverUnderTest) -> None:
    class Broken(NumberSequenceSource):
        def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
            raise LookupError("no such table")

    env = environment(1)
    numbers = env.from_source(Broken(1, 10), NO_WATERMARKS, "numbers")
    outcome = driver.run(collecting_graph(env, numbers.map(lambda n: n)))
    assert outcome.failure is not None
    assert outcome.failure.message == "no such table"


def test_a_cancelled_run_ends_and_the_next_one_begins(driver: DriverUnderTest, tmp_path: Path) -> None:
    started = str(tmp_path / "started")

    def wait(value: int) -> int:
        import pathlib
        import threading

        pathlib.Path(started).touch()
        threading.Event().wait()
        return value

    env = environment(2)
    graph = collecting_graph(env, env.from_collection([1, 2]).rebalance().map(wait))
    run, ended = driver.submit(graph)
    _until_there(tmp_path / "started")
    driver.cancel(graph, run)
    outcome = ended.result(LIMIT)
    assert outcome.cancelled
    assert outcome.failure is None
    env = environment(1)
    assert driver.run(collecting_graph(env, env.from_collection([3]))).collected() == [3]


def test_rows_wait_for_the_master(driver: DriverUnderTest) -> None:
    """While the master takes no rows, the run does not end, and what waits is one message."""
    env = environment(1, {"execution.batch.max-rows": "10"})
    graph = collecting_graph(env, env.from_collection(range(5000)))
    held: list[CollectRows] = []
    release = threading.Event()

    async def hold(rows: CollectRows) -> None:
        held.append(rows)
        await asyncio.to_thread(release.wait, LIMIT)

    driver.master.on_rows = hold
    try:
        _, ended = driver.submit(graph)
        _until(lambda: len(held) > 0)
        # Answers of the driver, which comes to no end meanwhile.
        driver.heartbeat()
        assert driver.heartbeat().run >= 0
        assert len(held) == 1 and not ended.done()
        release.set()
        assert ended.result(LIMIT).collected() == list(range(5000))
    finally:
        release.set()
        driver.master.on_rows = None


def test_others_read_no_file_of_the_driver(driver: DriverUnderTest) -> None:
    env = environment(1)
    driver.run(collecting_graph(env, env.from_collection([1])))
    logs = list((driver.folder / "logs").iterdir())
    assert {path.name for path in logs} >= {"driver-1.log", "driver-1.out", "driver-1-spark.log"}
    assert [path.name for path in logs if path.stat().st_mode & 0o007] == []


def test_ports_are_private_and_settings_hold_no_secret(driver: DriverUnderTest) -> None:
    java = driver.java()
    text = driver.page("/environment/").body.decode()
    ports = [each.laddr.ip for each in java.net_connections() if each.status == psutil.CONN_LISTEN]
    assert ports and all(ip.endswith("127.0.0.1") for ip in ports)
    told = " ".join([*java.cmdline(), *java.environ().values()])
    assert SECRET.decode() not in told and "PRIVATE KEY" not in told
    assert "spark.network.crypto.enabled" in text
    assert SECRET.decode() not in text and "PRIVATE KEY" not in text
    # Spark's own secret, which it makes anew for each application, is not shown.
    assert not re.search(r"spark\.authenticate\.secret</td>\s*<td>(?!\*+\(redacted\))", text)


def test_sparks_pages_show_themselves_to_their_driver_alone(driver: DriverUnderTest) -> None:
    env = environment(1)
    driver.run(collecting_graph(env, env.from_collection([1])))
    before = {
        each.laddr.port for each in driver.java().net_connections() if each.status == psutil.CONN_LISTEN
    }
    page = driver.page("/jobs/")
    assert (page.status, page.media_type.partition(";")[0]) == (200, "text/html")
    text = page.body.decode()
    # Links lead below the job's own path.
    assert f'href="{PAGES_BASE}/stages/"' in text and f'src="{PAGES_BASE}/static/' in text
    assert not re.search(r'(?:href|src)="/(?!jobs/f{32}/spark/)', text)
    assert driver.page("/").location.endswith("/jobs/")
    (application,) = msgspec.json.decode(driver.page("/api/v1/applications").body)
    assert application["id"] == driver.application().application_id
    # What is not there for anybody: ends of jobs, and looks into threads.
    # Tasks of other tests may be told as killed.
    assert "kill-link" not in text and "/kill/" not in text
    assert "Thread Dump" not in driver.page("/executors/").body.decode()
    assert driver.page("/jobs/job/kill/", "id=0").status != 200
    # Another user of this host, who has no token.
    ports = {each.laddr.port for each in driver.java().net_connections() if each.status == psutil.CONN_LISTEN}
    assert ports >= before
    paths = ("/jobs/", "/static/webui.css", "/api/v1/applications")
    answers = [_status_at(port, path) for port in ports for path in paths]
    assert HTTPStatus.FORBIDDEN in answers and HTTPStatus.OK not in answers


def _status_at(port: int, path: str) -> int:
    """The status of an answer by HTTP; 0 = whoever listens there does not speak HTTP."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def test_nothing_of_a_run_is_left(driver: DriverUnderTest) -> None:
    env = environment(1)
    driver.run(collecting_graph(env, env.from_collection([1])))
    runs = driver.folder / "work" / "runs"
    assert list(runs.iterdir()) == []
    assert driver.heartbeat().run == -1


def _until_there(path: Path) -> None:
    _until(path.exists)


def _until(condition: Any) -> None:
    waiting = threading.Event()
    for _ in range(int(LIMIT * 20)):
        if condition():
            return
        waiting.wait(0.05)
    raise AssertionError("the test waited for nothing")


def test_running_tasks_take_changed_rate_limits(driver: DriverUnderTest) -> None:
    """Each attempt asks the driver for its share, in the beginning and then once a second."""
    env = environment(2)
    numbers = env.from_source(NumberSequenceSource(1, 1000), NO_WATERMARKS, "numbers").uid("numbers")
    graph = collecting_graph(env, numbers.rate_limit(rows_per_second=0.001).map(lambda n: -n))
    run, ended = driver.submit(graph)
    stages = driver.master.outcomes[run].stages
    wait_until(lambda: any(stage.tasks_running for stage in list(stages.values())))
    assert not ended.done()
    driver.change_rate_limits(graph, run, {graph.vertices[0].head.id: RateLimit(rows_per_second=1e6)})
    outcome = ended.result(LIMIT)
    assert outcome.failure is None
    assert sorted(outcome.collected()) == list(range(-1000, 0))
