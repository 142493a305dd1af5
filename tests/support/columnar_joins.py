"""Joins of columns under tests: steps of hypothesis, and their run through restarts on either backend.

A step is ("rows", side, rows), ("watermark", time, None) or ("restart", (parallelism, backend), options). Results have
the columns `left` and `right`, which name the rows of both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from tests.support.restarted_columns import RestartedColumns
from tests.support.restarted_job import CANONICAL, OWN
from yarrow.runtime.graph.data_set_spec import JoinKind


def steps_of(
    rows: st.SearchStrategy[Any], watermarks: st.SearchStrategy[int], *, most: int = 14
) -> st.SearchStrategy[list[Any]]:
    """At most `most` steps: rows come twice as often as watermarks and restarts."""
    of_rows = st.tuples(st.just("rows"), st.integers(0, 1), rows)
    restart = st.tuples(
        st.just("restart"),
        st.tuples(st.integers(1, 4), st.sampled_from(["hashmap", "rocksdb"])),
        st.sampled_from([CANONICAL, OWN]),
    )
    watermark = st.tuples(st.just("watermark"), watermarks, st.none())
    return st.lists(st.one_of(of_rows, of_rows, watermark, restart), min_size=2, max_size=most)


def kept(joined: Any, kind: JoinKind) -> Any:
    """The join with the rows without a partner that it keeps."""
    match kind:
        case JoinKind.LEFT_OUTER:
            return joined.left_outer()
        case JoinKind.RIGHT_OUTER:
            return joined.right_outer()
        case JoinKind.FULL_OUTER:
            return joined.full_outer()
    return joined


def late_dropped(job: RestartedColumns) -> int:
    operators: list[Any] = job.operators
    return sum(operator.late_dropped for operator in operators)


def run_steps(
    job: RestartedColumns,
    steps: Iterable[Any],
    backend: str,
    *,
    push: Callable[[int, Any], None],
    rise: Callable[[int], None],
    check: Callable[[Counter[Any]], None],
    dropped: Callable[[], int],
) -> Counter[Any]:
    """Runs steps; the state returns to nothing. Returns the results: ((left, right), time).

    `push` and `rise` give rows and watermarks to the job and to a model. `check` gets the results behind each step,
    and `dropped` says how many late rows the model has lost in the end.
    """
    job.start(1, backend)
    found: Counter[Any] = Counter()
    lost = 0
    try:
        for step, what, how in steps:
            if step == "rows":
                push(what, how)
            elif step == "watermark":
                rise(what)
            else:
                lost += late_dropped(job)
                job.restart(what[0], what[1], how)
            found.update(((row["left"], row["right"]), time) for row, time in job.take())
            check(found)
        assert lost + late_dropped(job) == dropped()
        state = job.stop(CANONICAL)
        assert all(not subtask.keyed for subtask in state.subtasks.values())
    finally:
        for fragment in job.fragments:
            fragment.close()
    return found
