"""bench/yarn: how long a session takes from nothing, its first job, and the recovery from a
killed TaskExecutor and from a killed master.

Every engine goes through the same course, in turn, on one Hadoop of its own; medians and the ratio to Flink are
printed as one JSON line a figure. Owner: the main thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable

from bench.yarn_engines import BenchError, Engine, Flink, Yarrow
from tests.support.hadoop.cluster import HadoopCluster

#: Figure -> what must be shown: our seconds at most this share of Flink's, or at most these seconds.
WANTED: dict[str, tuple[str, float]] = {
    "session": ("ratio", 0.65),
    "first job, no spare": ("ratio", 0.6),
    "first job, one spare": ("ratio of no spare", 0.25),
    "recovery, no spare": ("ratio", 0.5),
    "recovery, one spare": ("seconds", 4.0),
    "recovery of the master": ("seconds", 20.0),
}
#: Flink has no TaskExecutor ready in the figure that ours with a spare is held against.
_AGAINST = {"first job, one spare": "first job, no spare"}

Times = dict[str, dict[str, list[float]]]


def course(engine: Engine, spare: int, times: Times, checkpoints: str) -> None:
    """One session from its start to its end."""
    suffix = "one spare" if spare else "no spare"
    seconds = engine.start_session(spare)
    times["session" if not spare else "session, one spare"][engine.name].append(seconds)
    try:
        if spare:
            engine.wait_for_executors(spare)
        times[f"first job, {suffix}"][engine.name].append(engine.run_short_job())
        job = engine.start_long_job(checkpoints)
        if spare:
            engine.wait_for_executors(spare + 1)
        times[f"recovery, {suffix}"][engine.name].append(engine.time_recovery(job))
        engine.cancel(job)
    finally:
        engine.stop_session()


def masters_course(engine: Engine, times: Times, storage: str) -> None:
    """A highly available session whose master is killed under a job."""
    engine.start_highly_available_session(f"{storage}/ha")
    try:
        job = engine.start_long_job(f"{storage}/checkpoints")
        times["recovery of the master"][engine.name].append(engine.time_recovery_of_master(job))
        engine.cancel(job)
    finally:
        engine.stop_session()


def report(times: Times) -> list[dict[str, object]]:
    """One entry a figure: medians, runs, and whether what is wanted was shown."""
    entries = []
    for figure, engines in times.items():
        medians = {name: round(statistics.median(runs), 2) for name, runs in engines.items()}
        entry: dict[str, object] = {
            "figure": figure,
            "seconds": medians,
            "runs": {name: [round(run, 2) for run in runs] for name, runs in engines.items()},
        }
        kind, limit = WANTED.get(figure, ("", 0.0))
        ours = medians.get("yarrow")
        base = times.get(_AGAINST.get(figure, figure), {}).get("flink")
        if ours is not None and kind == "seconds":
            entry |= {"wanted": f"at most {limit:g} s", "shown": ours <= limit}
        elif ours is not None and kind and base:
            ratio = ours / statistics.median(base)
            entry |= {
                "ratio": round(ratio, 3),
                "wanted": f"at most {limit:g} of Flink's",
                "shown": ratio <= limit,
            }
        entries.append(entry)
    return entries


def main() -> int:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--engine", choices=["yarrow", "flink"], action="append", help="default: both")
    arguments.add_argument("--spare", type=int, choices=[0, 1], action="append", help="default: 0 and 1")
    arguments.add_argument("--directory", help="a running cluster of scripts/hadoop; default: one of its own")
    given = arguments.parse_args()

    kinds: dict[str, Callable[[HadoopCluster], Engine]] = {"yarrow": Yarrow, "flink": Flink}
    names = given.engine or [name for name in kinds if name != "flink" or Flink.is_installed()]
    times: Times = defaultdict(lambda: defaultdict(list))
    hadoop = HadoopCluster.at(given.directory or tempfile.mkdtemp(prefix="bench-hadoop-"))
    failed = False
    hadoop.up()
    try:
        for number in range(given.rounds + 1):
            # The first round warms nodes and file caches, and shows what a first submission costs.
            measured: Times = times if number else defaultdict(lambda: defaultdict(list))
            for name in names:
                # Spare TaskExecutors are asked of ours alone: Flink's are what it does without.
                for spare in given.spare or ([0, 1] if name == "yarrow" else [0]):
                    try:
                        course(kinds[name](hadoop), spare, measured, f"{hadoop.hdfs_url}/tmp/bench-{name}")
                    except BenchError as error:
                        failed = True
                        print(f"round {number}, {name}, {spare} spare: {error}", file=sys.stderr)
                try:
                    masters_course(kinds[name](hadoop), measured, f"{hadoop.hdfs_url}/tmp/bench-{name}")
                except BenchError as error:
                    failed = True
                    print(f"round {number}, {name}, recovery of the master: {error}", file=sys.stderr)
            if not number:
                first = {figure: dict(engines) for figure, engines in measured.items()}
                print(json.dumps({"first round, not counted": first}), flush=True)
    finally:
        if given.directory is None:
            hadoop.down()
    entries = report(times)
    for entry in entries:
        print(json.dumps(entry))
    return 1 if failed or any(entry.get("shown") is False for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
