"""DataSet programs on Spark, parallelism 2: a grouped reduce, the times of many supersteps, connected components.

Started as `python -m bench.programs.data_sets` from the root of the checkout. `rounds` reports how much longer the last
supersteps of an iteration take than the first ones. `components` reports the seconds of one run, whose result it holds
against a plain search.
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.case import ROOT
from bench.programs import batch_functions as functions
from bench.programs.batch import driver_options, run_once
from bench.programs.rows import DroppingSink
from bench.repeated_runs import CpuWatch, measure, report
from tests.support.spark_driver import DriverUnderTest, spark_driver
from yarrow.batch.dataset import DataSet, ExecutionEnvironment
from yarrow.batch.dataset.functions import RichMapFunction, RuntimeContext
from yarrow.common import Configuration, Types
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph

_PAIR: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
#: Seconds that a run of an iteration may take.
_LIMIT: Final = 1200.0
#: Supersteps of the iteration whose rounds are timed; the first and the last ones of them that are compared.
SUPERSTEPS: Final = 100
COMPARED: Final = 10
#: Edges of the graph for each of its vertices.
_EDGES_OF_VERTEX: Final = 4


def environment() -> ExecutionEnvironment:
    settings = {"parallelism.default": "2", "execution.runtime-mode": "BATCH"}
    return ExecutionEnvironment(Configuration.from_dict(settings))


def collecting(data: DataSet) -> JobGraph:
    """The graph of a program that collects a data set."""
    program = data.get_execution_environment().program
    builder = program.graph_builder
    spec = CollectOperator(collect_id="result")
    builder.sink(builder.as_rows(data.transformation), "Collect", spec, parallelism=1)
    return program.get_job_graph()


def reduced(records: int, keys: int) -> DataSet:
    """map, group_by, reduce: what `reduceByKey` does."""
    pairs = environment().generate_sequence(0, records - 1).map(functions.pair_of(keys), _PAIR)
    return pairs.group_by(0).reduce(functions.add)


class Begins(RichMapFunction[Any, Any]):
    """The same rows; the first subtask writes the time at which each superstep begins."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        if runtime_context.get_index_of_this_subtask() == 0:
            number = runtime_context.get_iteration_runtime_context().get_superstep_number()
            with open(self._path, "a") as times:
                times.write(f"{number} {time.monotonic()}\n")

    def map(self, value: Any) -> Any:
        return value


def rounds(records: int, supersteps: int, times: Path) -> DataSet:
    """An iteration with a shuffle: each superstep moves the values of all keys to the next key."""

    def moved(pair: functions.Pair) -> functions.Pair:
        return ((pair[0] + 1) % records, pair[1])

    begin = environment().generate_sequence(0, records - 1).map(lambda number: (number, number), _PAIR)
    loop = begin.iterate(supersteps).name("rounds")
    body = loop.map(Begins(str(times)), _PAIR).map(moved, _PAIR).group_by(0).reduce(functions.add)
    return loop.close_with(body)


def lengths(times: Path) -> list[float]:
    """Seconds of each superstep but the last one. Raises ValueError if one began twice, or not in its turn."""
    begins = [line.split() for line in times.read_text().splitlines()]
    if [int(number) for number, _ in begins] != [*range(1, len(begins) + 1)]:
        raise ValueError(f"supersteps did not begin once and in turn: {begins}")
    moments = [float(moment) for _, moment in begins]
    return [after - before for before, after in pairwise(moments)]


def growth(seconds: Sequence[float], compared: int = COMPARED) -> dict[str, float | str]:
    """How much longer the last supersteps take than the first ones, by their medians.

    The first one of all also starts Spark's processes and counts for nothing.
    """
    first, last = median(seconds[1 : compared + 1]), median(seconds[-compared:])
    middle = (len(seconds) - compared) // 2
    return {
        "value": round(last / first, 3),
        "unit": "x",
        "first_s": round(first, 3),
        "middle_s": round(median(seconds[middle : middle + compared]), 3),
        "last_s": round(last, 3),
        "supersteps": len(seconds) + 1,
    }


def components(edges: int) -> tuple[DataSet, dict[int, int]]:
    """The number of vertices and the sum of their components as one row, and the components by a plain search."""
    example = runpy.run_path(str(ROOT / "examples" / "connected_components.py"))
    vertices = max(1, edges // _EDGES_OF_VERTEX)
    env = environment()
    pairs = env.generate_sequence(0, edges - 1).flat_map(example["BothWays"](vertices), _PAIR)
    found = example["connected_components"](env.generate_sequence(0, vertices - 1), pairs)
    counted = found.map(lambda row: (1, row[1]), _PAIR).sum(0).and_sum(1)
    expected = example["plain"](vertices, [example["edge_of"](number, vertices) for number in range(edges)])
    return counted, expected


def report_components(driver: DriverUnderTest, edges: int) -> None:
    """One run. Raises RuntimeError for a result that is not that of a plain search."""
    counted, expected = components(edges)
    watch = CpuWatch()
    cpu_before, began = watch.seconds(), time.monotonic()
    run, ended = driver.submit(collecting(counted))
    outcome = ended.result(_LIMIT)
    seconds, cpu = time.monotonic() - began, watch.seconds() - cpu_before
    if outcome.failure is not None:
        raise RuntimeError(outcome.failure.stacktrace)
    if outcome.collected() != [(len(expected), sum(expected.values()))]:
        raise RuntimeError(f"run {run} gives other components than a plain search: {outcome.collected()}")
    report(
        {
            "value": round(seconds, 2),
            "unit": "s",
            "cpu_s": round(cpu, 2),
            "supersteps": max(stage.superstep for stage in outcome.stages.values()),
            "components": len(set(expected.values())),
            "edges": edges,
        }
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=("reduce", "rounds", "components"), default="reduce")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--runs", type=int, default=2)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-data-sets-") as name:
        folder = Path(name)
        data = reduced(given.records, given.keys)
        data.output(DroppingSink())
        graph = data.get_execution_environment().program.get_job_graph()
        (folder / "driver").mkdir(mode=0o700)
        with spark_driver(folder / "driver", configuration=driver_options(graph, ())) as driver:
            driver.application()
            if given.job == "reduce":
                report(measure(given.records, given.runs, lambda: run_once(driver, graph)))
            elif given.job == "rounds":
                times = folder / "times"
                looping = rounds(given.records, SUPERSTEPS, times)
                looping.output(DroppingSink())
                outcome = driver.submit(looping.get_execution_environment().program.get_job_graph())[1]
                if (failure := outcome.result(_LIMIT).failure) is not None:
                    raise RuntimeError(failure.stacktrace)
                report(growth(lengths(times)))
            else:
                report_components(driver, given.records)


if __name__ == "__main__":
    main()
