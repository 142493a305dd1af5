"""The oracle of faults on a real cluster: whole output passes; a row lost, twice, counted twice, late, or left over
does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.steady_rows import APART, SteadyOutput, SteadySource

ROWS = 40
Rows = list[tuple[str, int, str]]


def whole() -> Rows:
    """What a run without faults puts out, in one of its orders."""
    counts: Counter[str] = Counter()
    found = []
    for key, _, identity, _ in SteadySource("", rows=ROWS).all_rows():
        counts[key] += 1
        found.append((key, counts[key], identity))
    return found


def write(folder: Path, rows: Rows) -> None:
    """Two files, as of two checkpoints; what the pipeline without an exchange puts out is whole."""
    apart = Path(f"{folder}-{APART}")
    apart.mkdir()
    others = SteadySource("", rows=ROWS, tag="a").all_rows()
    (apart / "rows-0-0").write_text("".join(f"{row}\n" for row in others))
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        (folder / f"rows-0-{number}").write_text("".join(f"{row}\n" for row in part))


def check(folder: Path) -> None:
    SteadyOutput(str(folder), ROWS).check()


def test_whole_output_passes(tmp_path: Path) -> None:
    write(tmp_path, whole())
    check(tmp_path)


def lose(rows: Rows) -> Rows:
    return rows[:7] + rows[8:]


def repeat(rows: Rows) -> Rows:
    return [*rows, rows[-1]]


def count_twice(rows: Rows) -> Rows:
    key = rows[-1][0]
    return [(k, count + (k == key and count > 1), identity) for k, count, identity in rows]


def swap(rows: Rows) -> Rows:
    key = rows[0][0]
    first, second = [place for place, row in enumerate(rows) if row[0] == key][:2]
    rows[first], rows[second] = rows[second], rows[first]
    return rows


def count_late(rows: Rows) -> Rows:
    """Counts in order, rows of a split not."""
    key = rows[0][0]
    first, second = [place for place, row in enumerate(rows) if row[0] == key][:2]
    (_, one, a), (_, two, b) = rows[first], rows[second]
    rows[first], rows[second] = (key, one, b), (key, two, a)
    return rows


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lose, "1 rows are missing"),
        (repeat, "1 are too many"),
        (count_twice, "the counts are"),
        (swap, "was written after"),
        (count_late, "was counted late"),
    ],
)
def test_what_is_wrong_is_found(tmp_path: Path, fault: Callable[[Rows], Rows], message: str) -> None:
    write(tmp_path, fault(whole()))
    with pytest.raises(AssertionError, match=message):
        check(tmp_path)


@pytest.mark.parametrize(("fault", "message"), [(lose, "1 rows are missing"), (repeat, "1 are too many")])
def test_the_pipeline_without_an_exchange_is_looked_at_too(
    tmp_path: Path, fault: Callable[[Rows], Rows], message: str
) -> None:
    write(tmp_path, whole())
    file = Path(f"{tmp_path}-{APART}") / "rows-0-0"
    file.write_text("".join(fault(file.read_text().splitlines(keepends=True))))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=message):
        check(tmp_path)


def test_what_is_left_over_is_found(tmp_path: Path) -> None:
    write(tmp_path, whole())
    staging = tmp_path / ".staging-1"
    staging.mkdir()
    check(tmp_path)
    (staging / "rows-1-0").write_text("")
    with pytest.raises(AssertionError, match="left over"):
        check(tmp_path)
