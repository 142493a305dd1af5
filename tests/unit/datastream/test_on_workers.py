"""A program of the API on workers: classes of its main program in keys, functions and records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

PROGRAM = """
import enum, sys
from dataclasses import dataclass
from typing import NamedTuple
from yarrow.datastream import MapFunction, StreamExecutionEnvironment

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclass(frozen=True)
class Point:
    x: int
    colour: Colour

class Counted(NamedTuple):
    point: Point
    count: int

class Double(MapFunction):
    def open(self, runtime_context):
        self.factor = 2

    def map(self, value):
        return Counted(value.point, value.count * self.factor)

if __name__ == "__main__":
    from tests.support.worker_harness import WorkerHarness

    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    points = env.from_collection([Point(i, Colour.BLUE if i % 3 == 0 else Colour.RED) for i in range(10)])
    counted = points.map(lambda point: Counted(point, 1)).key_by(lambda counted: counted.point.colour)
    counted.reduce(lambda a, b: Counted(b.point, a.count + b.count)).map(Double()).map(
        lambda counted: f"{counted.point.colour.name} {counted.count} {type(counted).__name__} "
    ).print()
    with WorkerHarness(2, processes=sys.argv[1] == "processes") as workers:
        workers.run(env.get_job_graph("main classes"))
        print("".join(workers.output))
"""


@pytest.mark.cluster
@pytest.mark.parametrize("workers", ["processes", "threads"])
def test_classes_of_the_main_program(tmp_path: Path, workers: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(PROGRAM)
    finished = subprocess.run(
        [sys.executable, str(script), workers],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    words = finished.stdout.replace(">", " ").split()
    largest = {colour: 0 for colour in ("RED", "BLUE")}
    for colour, count, kind in zip(words, words[1:], words[2:], strict=False):
        if colour in largest:
            assert kind == "Counted"
            largest[colour] = max(largest[colour], int(count))
    assert largest == {"RED": 12, "BLUE": 8}
