"""Fault plans by the thousand: seed after seed over all job shapes and backends, each held against the output without
faults. A failure is printed with the command that replays it; any failure makes the exit status 1.

Tests on a real YARN, and of large rows and values, leave their results in docs/soak.md; plans have none but failures.
One cluster at a time serves many plans: workers are processes and are killed, or everything is a thread, calls fail and
messages are lost. Started as `bench/soak`; owner: the main thread.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import soak_connectors, soak_large_row, soak_pages, soak_requests, soak_yarn
from bench.soak_results import PAGE, ResultsPage, Row, present_commit, report
from tests.support.bounded_fault_runs import POINTS, BoundedFaultRun
from tests.support.fault_jobs import SHAPES as PLAIN_SHAPES
from tests.support.fault_jobs import JobShape
from tests.support.fault_runs import KILLING_POINTS, RAISING_POINTS, FaultRun
from tests.support.faulty_network import FaultyNetwork
from tests.support.operator_jobs import OPERATOR_SHAPES
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.testing.fault_plan import PlannedMessages, make_plan

SHAPES = PLAIN_SHAPES + OPERATOR_SHAPES
BACKENDS = ("hashmap", "rocksdb")
#: kill: processes die; raise: calls fail, stall, and messages are lost, late or repeated; bounded: processes of jobs in
#: batch mode die, and their calls fail.
KINDS = ("kill", "raise", "bounded")
#: Where jobs of each kind run: their state backend; who runs them in batch mode.
PLACES = {"kill": BACKENDS, "raise": BACKENDS, "bounded": tuple(POINTS)}
CONFIGURATION = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "10 s", "slot.request.timeout": "30 s"}
#: Seeds that one cluster serves before that of the other kind takes its place.
SEEDS_A_CLUSTER = 10
#: Plans between two lines of progress.
REPORTED = 50


@dataclass(frozen=True, slots=True)
class Run:
    """One plan, in the terms of the command line."""

    shape: JobShape
    #: One of PLACES.
    backend: str
    seed: int
    kind: str

    def command(self) -> str:
        """What replays it."""
        return f"bench/soak --replay {self.shape.name} {self.backend} {self.seed} {self.kind}"


def runs(first_seed: int, kinds: Sequence[str]) -> Iterator[Run]:
    """Without end: some seeds with every kind, each for all shapes and backends, then the next ones."""
    for start in itertools.count(first_seed, SEEDS_A_CLUSTER):
        for kind, seed in itertools.product(kinds, range(start, start + SEEDS_A_CLUSTER)):
            for shape, backend in itertools.product(shapes_of(kind), PLACES[kind]):
                yield Run(shape, backend, seed, kind)


def shapes_of(kind: str) -> list[JobShape]:
    """The shapes that run in plans of a kind: batch mode has no loops."""
    return [shape for shape in SHAPES if kind != "bounded" or shape.runs_bounded]


class ClusterInPlace:
    """The cluster of the kind that is being run; programs go to the one that was opened last."""

    def __init__(self) -> None:
        self._kind = ""
        self._cluster: MiniCluster | None = None
        self._opened = ExitStack()
        self._messages = PlannedMessages()

    def execute(self, run: Run) -> None:
        """Raises what the oracle or the job says; the next plan then gets another cluster."""
        messages = self._messages if run.kind == "raise" else None
        folder = Path(tempfile.mkdtemp(prefix="soak-"))
        try:
            cluster = self._of(run.kind)
            if run.kind == "bounded":
                # Places of the master and of a task's ends may come once.
                plan = make_plan(run.seed, POINTS[run.backend], occurrences=1)
                BoundedFaultRun(run.shape, run.backend, plan).execute(cluster, folder)
                return
            plan = make_plan(run.seed, KILLING_POINTS if run.kind == "kill" else RAISING_POINTS)
            FaultRun(run.shape, run.backend, plan).execute(cluster, folder, messages)
        except BaseException:
            self.close()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _of(self, kind: str) -> MiniCluster:
        if self._cluster is None or self._kind != kind:
            self.close()
            network = FaultyNetwork(self._messages) if kind == "raise" else None
            started = mini_cluster(
                1, 2, processes=kind != "raise", configuration=CONFIGURATION, network=network
            )
            self._cluster, self._kind = self._opened.enter_context(started), kind
        return self._cluster

    def close(self) -> None:
        """Nothing is left of it."""
        self._cluster = None
        self._opened.close()


def soak(wanted: Iterator[Run], minutes: float | None, plans: int | None) -> list[Run]:
    """Runs until time or number is reached; the runs that failed."""
    clock = SystemClock()
    deadline = None if minutes is None else clock.monotonic() + 60 * minutes
    failed: list[Run] = []
    cluster = ClusterInPlace()
    done = 0
    try:
        for run in wanted:
            if (plans is not None and done >= plans) or (
                deadline is not None and clock.monotonic() >= deadline
            ):
                break
            try:
                cluster.execute(run)
            except Exception:  # whatever it is, the next seed goes on
                failed.append(run)
                traceback.print_exc()
                print(f"FAILED: {run.command()}", flush=True)
            done += 1
            if done % REPORTED == 0:
                print(f"{done} plans, {len(failed)} failed", flush=True)
    finally:
        cluster.close()
    print(f"{done} plans, {len(failed)} failed", flush=True)
    for run in failed:
        print(run.command())
    return failed


def replayed(words: Sequence[str]) -> Run:
    """The run of `--replay`. Raises ValueError naming what does not exist."""
    name, backend, seed, kind = words
    shapes = {shape.name: shape for shape in shapes_of(kind)}
    for what, value, known in (
        ("shape", name, shapes),
        ("kind", kind, KINDS),
        ("place", backend, PLACES.get(kind, ())),
    ):
        if value not in known:
            raise ValueError(f"there is no {what} {value!r}: expected one of {', '.join(known)}")
    if not seed.isdecimal():
        raise ValueError(f"a seed is a number, not {seed!r}")
    return Run(shapes[name], backend, int(seed), kind)


def rows_asked_for(given: argparse.Namespace) -> Iterable[Row] | None:
    """What came of the tests that the command line names; None where it asks for plans."""
    if given.yarn:
        known = {result.test: result.seconds for result in ResultsPage(given.page).results()}
        return soak_yarn.run_named(given.only, known, given.processes)
    if given.nemesis is not None:
        return soak_yarn.run_nemesis(given.first_seed, given.nemesis, given.seconds, given.only)
    if given.large_row is not None:
        return soak_large_row.run_large_row(given.large_row)
    if given.requests is not None:
        return soak_requests.run_requests(given.requests)
    if given.pages is not None:
        return soak_pages.run_pages(given.pages)
    if given.largest_value:
        return soak_large_row.run_largest_value()
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="bench/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, help="stop after so many minutes")
    parser.add_argument("--plans", type=int, help="stop after so many plans (1000 where nothing is given)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, help="this kind only")
    parser.add_argument(
        "--replay", nargs=4, metavar=("SHAPE", "PLACE", "SEED", "KIND"), help="one plan again"
    )
    parser.add_argument("--yarn", action="store_true", help="named faults on a real YARN")
    parser.add_argument(
        "--only", default="", help="of --yarn, --nemesis: tests whose names match, as pytest -k"
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=soak_yarn.PROCESSES,
        help="of --yarn: how many run tests at once, each with a cluster of its own",
    )
    parser.add_argument(
        "--nemesis",
        type=int,
        nargs="?",
        const=2,
        metavar="SEEDS",
        help="so many seeds of the nemesis, on a real YARN: 2 or more, since odd and even ones end differently",
    )
    parser.add_argument("--seconds", type=float, default=180.0, help="of --nemesis: how long each has faults")
    parser.add_argument(
        "--large-row",
        type=int,
        nargs="?",
        const=soak_large_row.MEBIBYTES,
        metavar="MEBIBYTES",
        help="a row of a gigabyte, or of so many MiB, through exchange, state and checkpoints",
    )
    parser.add_argument(
        "--largest-value",
        action="store_true",
        help="values of state as large as RocksDB takes them, 2 GiB, and one that is larger",
    )
    parser.add_argument(
        "--requests",
        type=int,
        nargs="?",
        const=soak_requests.EXAMPLES,
        metavar="EXAMPLES",
        help="so many requests made up for each operation of REST",
    )
    parser.add_argument(
        "--pages",
        type=int,
        nargs="?",
        const=soak_pages.ROUNDS,
        metavar="ROUNDS",
        help="every page of Flink's dashboard so often, while jobs restart and after they have ended",
    )
    parser.add_argument(
        "--connectors",
        type=int,
        nargs="?",
        const=soak_connectors.PLANS,
        metavar="PLANS",
        help="so many plans of connectors for each guarantee, on a Kafka of its own",
    )
    parser.add_argument(
        "--guarantee",
        choices=[guarantee.name for guarantee in DeliveryGuarantee],
        help="of --connectors: this guarantee only",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=PAGE,
        help="where results on a real YARN, and of large rows and values, are stored (docs/soak.md)",
    )
    given = parser.parse_args(arguments)
    if given.pages is not None and given.pages < 1:
        parser.error(f"--pages takes 1 round or more, not {given.pages}")
    if given.nemesis is not None and given.nemesis < 2:
        parser.error(
            "--nemesis takes 2 seeds or more: an odd one ends by comparing output, an even one by a cancel"
        )
    if given.connectors is not None:
        chosen = [one for one in DeliveryGuarantee if given.guarantee in (None, one.name)]
        with only_errors_logged():
            return 1 if soak_connectors.run_connectors(given.connectors, given.first_seed, chosen) else 0
    commit = present_commit()
    if (rows := rows_asked_for(given)) is not None:
        try:
            return report(rows, ResultsPage(given.page), commit)
        except KeyboardInterrupt:
            print("Ended before the last test; what was known is stored.", file=sys.stderr)
            return 130
    if given.replay is not None:
        try:
            run = replayed(given.replay)
        except ValueError as error:
            parser.error(str(error))
        asked, plans = iter([run]), None
    else:
        plans = 1000 if given.minutes is None and given.plans is None else given.plans
        asked = runs(given.first_seed, KINDS if given.kind is None else (given.kind,))
    with only_errors_logged():
        return 1 if soak(asked, given.minutes, plans) else 0


@contextmanager
def only_errors_logged() -> Iterator[None]:
    """Faults on purpose make warnings by the hundred. Whoever calls `main` has its own logging back afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


if __name__ == "__main__":
    sys.exit(main())
