"""Bounded jobs under faults: whoever dies or fails at whichever place, the output is exact, or nothing is committed.

Each fault of workers once, with the job shapes in turn. `bench/soak --kind bounded` has seeds, and runs on Spark too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.conftest import count_bounded_plan
from tests.support.bounded_fault_runs import LOCAL_POINTS, BoundedFaultRun
from tests.support.fault_jobs import FILES, SHAPES, JobShape
from tests.support.operator_jobs import OPERATOR_SHAPES
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import FaultPlan, make_plan

pytestmark = pytest.mark.fault

CONFIGURATION = {"heartbeat.interval": "500 ms", "heartbeat.timeout": "10 s", "slot.request.timeout": "30 s"}


def plans() -> list[Any]:
    # A FileSink, whose files have several folders, at every other place.
    others = [shape for shape in SHAPES + OPERATOR_SHAPES if shape is not FILES and shape.runs_bounded]
    shapes = itertools.cycle(each for shape in others for each in (FILES, shape))
    places = [(point, action) for point, actions in LOCAL_POINTS for action in actions]
    found = []
    for seed, ((point, action), shape) in enumerate(zip(places, shapes, strict=False)):
        plan = make_plan(seed, [(point, [action])], occurrences=2)
        found.append(pytest.param(shape, plan, id=f"{shape.name}-{point}-{action.value}".replace(" ", "-")))
    return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    """Workers are processes."""
    with mini_cluster(1, 2, configuration=CONFIGURATION) as started:
        yield started


@pytest.mark.parametrize(("shape", "plan"), plans())
def test_output_is_exact_or_nothing_is_committed(
    shape: JobShape, plan: FaultPlan, cluster: MiniCluster, tmp_path: Path
) -> None:
    BoundedFaultRun(shape, "local", plan).execute(cluster, tmp_path)
    count_bounded_plan()
