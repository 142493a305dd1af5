"""The bounded row programs in plain PySpark: RDDs that call the same functions, the same job several times.

`reduce`: map, keyBy, reduceByKey. `idiomatic`: the same sums as a PySpark program would write them, pairs and
operator.add. `process`: groupByKey, then a hand-written loop around the same KeyedProcessFunction. `--check` collects
the results of one run and prints them in short. Started as `python -m bench.peers.spark_rows` from the root of the
checkout.
"""

from __future__ import annotations

import argparse
import json
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark import RDD, SparkContext

from bench.peers.key_loop import KeyLoop
from bench.peers.spark_session import spark_session
from bench.programs import batch_functions as functions
from bench.repeated_runs import measure, report

#: As many as the engine's program has.
PARTITIONS = 2


def reduce(numbers: RDD[int], keys: int) -> RDD[Any]:
    pairs = numbers.map(functions.pair_of(keys)).keyBy(functions.key_of)
    return pairs.reduceByKey(functions.add, PARTITIONS).values()


def idiomatic(numbers: RDD[int], keys: int) -> RDD[Any]:
    return numbers.map(lambda number: (number % keys, 1)).reduceByKey(operator.add, PARTITIONS)


def process(numbers: RDD[int], keys: int) -> RDD[Any]:
    events = numbers.map(functions.event_of(keys)).keyBy(functions.key_of)
    return events.groupByKey(PARTITIONS).mapPartitions(_sums_at_timers)


def _sums_at_timers(groups: Iterable[tuple[int, Iterable[functions.Event]]]) -> Iterator[functions.Pair]:
    return KeyLoop(functions.SumAtTimer(), functions.time_of).results(groups)


JOBS: dict[str, Callable[[RDD[int], int], RDD[Any]]] = {
    "reduce": reduce,
    "idiomatic": idiomatic,
    "process": process,
}


def drop(rows: Iterable[object]) -> None:
    """Takes rows and forgets them."""
    for _ in rows:
        pass


def results(context: SparkContext, job: str, records: int, keys: int) -> RDD[Any]:
    return JOBS[job](context.range(records, numSlices=PARTITIONS), keys)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--job", choices=JOBS, default="reduce")
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--runs", type=int, default=2)
    arguments.add_argument("--check", action="store_true", help="collect the results of one run")
    given = arguments.parse_args()
    with spark_session(f"bench {given.job}") as session:
        context = session.sparkContext
        if given.check:
            rows = results(context, given.job, given.records, given.keys).collect()
            print(json.dumps({"rows": len(rows), "total": sum(row[1] for row in rows)}))
            return

        def run() -> None:
            results(context, given.job, given.records, given.keys).foreachPartition(drop)

        found = measure(given.records, given.runs, run)
    report(found)


if __name__ == "__main__":
    main()
