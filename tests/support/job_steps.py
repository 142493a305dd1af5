"""Steps of properties with a job: rows, watermarks, and restarts at another parallelism and on another backend."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.support.restarted_job import CANONICAL, OWN

#: A kind of step, and what it takes.
Step = tuple[str, Any]

#: Parallelism, backend and form of the snapshot of a restart.
RESTARTS = st.tuples(
    st.integers(1, 4), st.sampled_from(["hashmap", "rocksdb"]), st.sampled_from([CANONICAL, OWN])
)


def job_steps(
    rows: SearchStrategy[Any], times: SearchStrategy[int], most: int = 14, *, mostly_rows: bool = False
) -> SearchStrategy[list[Step]]:
    """Two to `most` steps: `rows`, a watermark of `times`, or a restart; rows twice as often with `mostly_rows`."""
    of_rows = rows.map(lambda given: ("rows", given))
    others = times.map(lambda time: ("watermark", time)), RESTARTS.map(lambda how: ("restart", how))
    kinds = st.one_of(of_rows, of_rows, *others) if mostly_rows else st.one_of(of_rows, *others)
    return st.lists(kinds, min_size=2, max_size=most)
