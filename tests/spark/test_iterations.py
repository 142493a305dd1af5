"""Iterations on Spark: the supersteps of a program, its counts, its failures and its end."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import time
from typing import Any

import pytest

from tests.architecture.source_tree import ROOT
from tests.support.batch_runner import collecting_graph
from tests.support.data_sets import data_set_environment, graph_of
from tests.support.looping_programs import Program
from tests.support.spark_driver import LIMIT, DriverUnderTest
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter
from yarrow.datastream import RuntimeContext
from yarrow.datastream.functions import MapFunction
from yarrow.datastream.functions.iteration_functions import LongSumAggregator, LongZeroConvergence

pytestmark = pytest.mark.spark


class Countdown(MapFunction[int, int]):
    """Takes one away; counts what is left, and its calls."""

    def __init__(self, breaks_at: int = 0) -> None:
        self.breaks_at = breaks_at

    def open(self, runtime_context: RuntimeContext) -> None:
        self.superstep = runtime_context.get_iteration_runtime_context()
        self.calls = IntCounter()
        runtime_context.add_accumulator("calls", self.calls)

    def map(self, value: int) -> int:
        if self.superstep.get_superstep_number() == self.breaks_at:
            raise ValueError(f"no {value}")
        self.calls.add(1)
        if value > 1:
            self.superstep.get_iteration_aggregator("left").aggregate(1)
        return max(0, value - 1)


def counting_down(numbers: list[int], function: Countdown, most: int = 100) -> tuple[Program, Any]:
    program = Program(2)
    loop = program.begin(program.rows(numbers, Types.LONG()), most=most, name="count down")
    loop.register_convergence("left", LongSumAggregator(), LongZeroConvergence())
    (result,) = loop.close([program.stream(loop.inputs[0]).map(function, Types.LONG()).transformation])
    return program, collecting_graph(program.env, program.stream(result))


def test_supersteps_follow_until_the_aggregate_converges(driver: DriverUnderTest) -> None:
    _, graph = counting_down([3, 1, 12, 7, 0], Countdown())
    outcome = driver.run(graph)
    assert outcome.failure is None, outcome.failure
    assert outcome.collected() == [0] * 5
    body = next(stage for stage in outcome.stages.values() if stage.superstep)
    assert (body.superstep, body.state.value) == (12, "FINISHED")
    assert outcome.states[body.vertex_id][-2:] in (["RUNNING", "FINISHED"], ["FINISHED"])
    results = [each for each in outcome.subtasks if each.vertex_id == body.vertex_id]
    assert sum(each.accumulators["calls"] for each in results) == 12 * 5
    assert sum(each.metrics["numRecordsIn"] for each in results) == 12 * 5


def test_a_failure_names_operator_record_and_superstep(driver: DriverUnderTest) -> None:
    _, graph = counting_down([9], Countdown(breaks_at=3))
    outcome = driver.run(graph)
    assert outcome.failure is not None
    assert outcome.failure.stacktrace.startswith("Traceback")
    assert "no 7" in outcome.failure.message
    assert (outcome.failure.operator_name, outcome.failure.record) == ("Map", "7")
    assert ", superstep 3\n" in outcome.failure.stacktrace


class Dies(MapFunction[int, int]):
    """Ends its process in the second superstep, as the kernel does that has no memory left."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.superstep = runtime_context.get_iteration_runtime_context()

    def map(self, value: int) -> int:
        if self.superstep.get_superstep_number() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return value


def test_a_killed_python_worker_fails_the_job_by_name_where_spark_repeats_no_task(
    driver: DriverUnderTest,
) -> None:
    program = Program(1)
    loop = program.begin(program.rows([5], Types.LONG()), most=9, name="loop")
    (result,) = loop.close([program.stream(loop.inputs[0]).map(Dies(), Types.LONG()).transformation])
    outcome = driver.run(collecting_graph(program.env, program.stream(result)))
    assert outcome.failure is not None
    assert outcome.failure.exception_name.endswith("TaskLostError")
    assert re.search(r"of task '.*Map.*' \(subtask 1/1, superstep 2\) has died", outcome.failure.message)


def spark_pages(driver: DriverUnderTest, name: str) -> list[dict[str, Any]]:
    """What Spark itself tells of its jobs or stages."""
    application = driver.application()
    page = driver.page(f"/api/v1/applications/{application.application_id}/{name}")
    found: list[dict[str, Any]] = json.loads(page.body)
    return found


def jobs_of_run(driver: DriverUnderTest, group: str, least: int) -> list[dict[str, Any]]:
    """The Spark jobs of a run, which are a group, in order. Spark tells of jobs some time after they have ended."""
    limit = time.monotonic() + LIMIT
    while True:
        jobs = [job for job in spark_pages(driver, "jobs") if job.get("jobGroup") == group]
        if len(jobs) >= least and all(job["status"] == "SUCCEEDED" for job in jobs):
            return sorted(jobs, key=lambda job: int(job["jobId"]))
        assert time.monotonic() < limit, jobs
        time.sleep(0.1)


def sizes_of_jobs(driver: DriverUnderTest, group: str, least: int) -> list[tuple[int, int]]:
    """Of each Spark job of a run: its stages, skipped ones too, and the data sets of those that ran.

    Spark keeps 200 stages, and forgets skipped ones first.
    """
    jobs = jobs_of_run(driver, group, least)
    stages = [stage for stage in spark_pages(driver, "stages") if stage["status"] == "COMPLETE"]
    lineage = {stage["stageId"]: len(stage["rddIds"]) for stage in stages}
    return [(len(job["stageIds"]), sum(lineage.get(stage, 0) for stage in job["stageIds"])) for job in jobs]


def test_data_sets_go_round_by_key_and_what_is_outside_stays(driver: DriverUnderTest) -> None:
    program = Program(2)
    factors = program.rows([("a", 2), ("b", 3)])
    loop = program.begin(program.rows([("a", 1), ("b", 1), ("a", 5)]), most=12)
    joined = program.join(
        loop.inputs[0], 0, factors.transformation, 0, lambda row, by: (row[0], row[1] * by[1])
    )
    (result,) = loop.close([joined.transformation])
    graph = collecting_graph(program.env, program.stream(result))
    run, ended = driver.submit(graph)
    outcome = ended.result(LIMIT)
    assert outcome.failure is None, outcome.failure
    assert sorted(outcome.collected()) == [("a", 2**12), ("a", 5 * 2**12), ("b", 3**12)]
    # The lineage of rows is cut: what Spark plans for a superstep does not grow with its number. The first one also
    # computes what is outside.
    sizes = sizes_of_jobs(driver, f"{graph.job_id}-{run}", 12)
    assert len(set(sizes[1:12])) == 1, sizes


def test_connected_components_of_an_example(driver: DriverUnderTest) -> None:
    program = runpy.run_path(str(ROOT / "examples" / "connected_components.py"))
    env = data_set_environment(2)
    pairs = env.generate_sequence(0, 499).flat_map(program["BothWays"](300), program["PAIR"])
    outcome = driver.run(graph_of(program["connected_components"](env.generate_sequence(0, 299), pairs)))
    assert outcome.failure is None, outcome.failure
    edges = [program["edge_of"](number, 300) for number in range(500)]
    assert sorted(outcome.collected()) == sorted(program["plain"](300, edges).items())
    assert max(stage.superstep for stage in outcome.stages.values()) > 2


def test_a_cancelled_run_begins_no_further_superstep(driver: DriverUnderTest) -> None:
    _, graph = counting_down([1_000_000], Countdown(), most=1_000_000)
    run, ended = driver.submit(graph)
    outcome = driver.master.outcomes[run]
    deadline = time.monotonic() + LIMIT
    while not any(stage.superstep > 2 for stage in outcome.stages.values()):
        assert time.monotonic() < deadline and not ended.done()
        time.sleep(0.05)
    driver.cancel(graph, run)
    assert ended.result(LIMIT).cancelled
