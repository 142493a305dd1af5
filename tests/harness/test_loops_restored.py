"""Loops killed wherever a checkpoint may stand: records in the loop, aligned or not, restored at parallelism 1 to 4."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.support.loop_jobs import LOOPS, check_exact, loop_job
from tests.support.loop_run import LoopRun

RECORDS = range(12)
#: Steps from one row of the source to the next.
ROW_EVERY = 3
#: Kills in one run.
ATTEMPTS = 9


def advance(run: LoopRun, steps: int) -> None:
    """So many slices of tasks, with rows between them."""
    for number in range(steps):
        if number % ROW_EVERY == 0:
            run.send_row()
        run.step()


def until_complete(run: LoopRun, number: int, most: int) -> None:
    """Until a checkpoint is complete, or so many slices have passed: the task may be killed before that."""
    for _ in range(most):
        if run.completed is not None and run.completed.number == number:
            return
        run.step()


@pytest.mark.slow
@pytest.mark.parametrize("unaligned", [False, True])
@pytest.mark.parametrize("form", LOOPS)
def test_killed_and_restored_over_and_over(form: str, unaligned: bool) -> None:
    held = 0
    for seed in range(2):
        draw = random.Random(seed)
        backend = "rocksdb" if seed == 1 else "hashmap"
        run = LoopRun(partial(loop_job, form=form), RECORDS, seed, {"state.backend.type": backend})
        for attempt in range(ATTEMPTS):
            run.start(1 + (attempt + seed) % 4)
            advance(run, draw.randrange(30))
            cut = run.begin_checkpoint(unaligned=unaligned)
            # A kill before the checkpoint is complete, or at once behind it, or some time later.
            until_complete(run, cut.number, draw.choice([5, 2000, 2000, 2000]))
            if run.completed is cut:
                held += run.held_by("loop") + run.channels_held
            advance(run, draw.randrange(6))
            run.kill()
        run.start(1 + seed)
        run.finish()
        check_exact(run.printed, RECORDS)
        run.kill()
    assert held > 0, "checkpoints found records in the loop"
