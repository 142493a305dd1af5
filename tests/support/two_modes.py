"""Programs as users write them, in both modes: planned as the command line does, compared as `yarrow verify` does."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from yarrow.cli.program import Program
from yarrow.cli.run_command import planned_job
from yarrow.cli.verification.captured_graph import captured, sinks_of
from yarrow.cli.verification.captured_rows import entries_in
from yarrow.cli.verification.comparison import SinkComparison, compare
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch import batch_rules
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType

PROGRAMS = Path(__file__).resolve().parents[1] / "spark" / "programs"
#: The names of all programs.
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.py"))

#: Runs a graph to its end, and raises if it fails.
Run = Callable[[JobGraph], object]


@contextlib.contextmanager
def main_of(name: str, parallelism: int, arguments: Sequence[str] = ()) -> Iterator[JobGraph]:
    """The JobGraph of a program, which is `__main__` during the block, as in its own process."""
    main, argv, path = sys.modules["__main__"], sys.argv, list(sys.path)
    settings = Settings({"parallelism.default": str(parallelism)}, "the test")
    try:
        program = Program(str(PROGRAMS / f"{name}.py"), arguments=tuple(arguments))
        graph = planned_job(program, settings).job_graph
        batch_rules.check(graph)
        yield graph
    finally:
        sys.modules["__main__"] = main
        sys.argv, sys.path[:] = argv, path


def compared(graph: JobGraph, folder: Path, streaming: Run, batch: Run) -> dict[str, SinkComparison]:
    """Runs a program in both modes; the comparison of each sink by name."""
    sinks = sinks_of(graph)
    folders: dict[JobType, list[Path]] = {}
    for mode, run in ((JobType.STREAMING, streaming), (JobType.BATCH, batch)):
        folders[mode] = [folder / mode.name / str(at) for at in range(len(sinks))]
        for each in folders[mode]:
            each.mkdir(parents=True)
        run(captured(graph, mode, sinks, folders[mode]))
    found: dict[str, SinkComparison] = {}
    for at, sink in enumerate(sinks):
        one, other = (entries_in(folders[mode][at]) for mode in (JobType.STREAMING, JobType.BATCH))
        found[sink.name] = compare(one, other, rows_are_keys=not sink.key.is_known)
    return found


def assert_equal(found: dict[str, Any]) -> None:
    """Fails with the first difference of each sink; each sink must have had rows."""
    assert {name: result.first for name, result in found.items() if not result.is_equal} == {}
    assert all(result.rows[0] > 0 for result in found.values()), found
