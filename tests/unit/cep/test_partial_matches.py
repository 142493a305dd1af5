"""A sweep keeps what runs can reach, in its order, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.cep.partial_matches import PartialMatches

STEPS = ("a", "b")


@st.composite
def tables(draw: st.DrawFn) -> PartialMatches:
    """Cells over records, each behind an older one or at a beginning, and runs at some of them."""
    matches = PartialMatches.none()
    for number in range(draw(st.integers(1, 12))):
        before = draw(st.integers(-1, len(matches.cells) - 1))
        if not matches.records or draw(st.booleans()):
            matches.records.append((number, f"record {number}"))
        matches.cells.append((draw(st.integers(0, 1)), len(matches.records) - 1, before))
    for cell in draw(st.sets(st.integers(0, len(matches.cells) - 1))):
        start = list(matches.path(cell))[-1][1]
        if draw(st.booleans()):
            matches.runs.append((draw(st.integers(0, 3)), cell, start))
        else:
            matches.complete.append((cell, start))
    return matches


def shown(matches: PartialMatches) -> list[object]:
    """What runs and complete matches mean."""
    runs = [
        (state, matches.match(cell, STEPS), matches.records[start]) for state, cell, start in matches.runs
    ]
    return [runs, [(matches.match(cell, STEPS), matches.records[start]) for cell, start in matches.complete]]


@settings(max_examples=60, deadline=None)
@given(tables())
def test_a_sweep_keeps_what_runs_can_reach(matches: PartialMatches) -> None:
    before = shown(matches)
    reached = {cell for cell, _ in matches.complete} | {run[1] for run in matches.runs}
    for cell in list(reached):
        while (cell := matches.cells[cell][2]) >= 0:
            reached.add(cell)
    times = sorted({matches.records[matches.cells[cell][1]][0] for cell in reached})
    matches.sweep()
    assert shown(matches) == before
    assert len(matches.cells) == len(reached) == matches.kept[0]
    assert [time for time, _ in matches.records] == times


def test_a_key_without_runs_keeps_no_record() -> None:
    matches = PartialMatches([(1, "record")], [(0, 0, -1)], [], [], [0])
    matches.sweep_if_large()
    assert matches == PartialMatches.none()


def test_cells_are_swept_before_they_are_many() -> None:
    matches = PartialMatches.none()
    for number in range(10_000):
        matches.records.append((number, number))
        matches.cells.append((0, len(matches.records) - 1, -1))
        matches.runs[:] = [(1, len(matches.cells) - 1, len(matches.records) - 1)]
        matches.sweep_if_large()
        assert len(matches.cells) < 20
