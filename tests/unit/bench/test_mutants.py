"""The catalogue of mutants: each applies once to today's code, and its test is there. `bench/mutants` runs them."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bench.mutation.mutant import Mutant, MutantDoesNotApplyError, Sources, killers_of
from bench.mutation.runner import Outcome, Result, judged, mutants_by_area, row, store, stored_rows

ROOT = Path(__file__).parents[3]
AREAS = {"checkpoints", "credit", "fencing", "security", "slots", "state", "timers"}


@pytest.fixture(scope="module")
def sources() -> Sources:
    return Sources(ROOT)


def test_each_area_has_mutants_and_none_is_listed_twice() -> None:
    areas = mutants_by_area()
    assert set(areas) == AREAS
    every = [mutant for mutants in areas.values() for mutant in mutants]
    assert len(every) >= 150
    assert len({(mutant.function, mutant.text, mutant.replacement) for mutant in every}) == len(every)


@pytest.mark.slow
@pytest.mark.parametrize("area", sorted(AREAS))
def test_each_mutant_applies_exactly_once(sources: Sources, area: str) -> None:
    for mutant in mutants_by_area()[area]:
        place = sources.place_of(mutant)
        mutated = place.mutated(sources.text_of(place.path), mutant)
        compile(mutated, place.path, "exec", dont_inherit=True)
        assert mutated != sources.text_of(place.path)


@pytest.mark.parametrize("area", sorted(AREAS))
def test_each_mutant_has_a_test_or_a_reason(area: str) -> None:
    mutants = mutants_by_area()[area]
    for mutant in mutants:
        assert bool(mutant.killer) != bool(mutant.equivalent), mutant
    assert killers_of(ROOT, [mutant for mutant in mutants if mutant.killer])


#: Errors by which the engine refuses whoever may not ask.
REFUSALS = {
    "FencingTokenError",
    "ForbiddenError",
    "SlotNotAvailableError",
    "SlotNotFoundError",
    "UnauthorizedError",
    "UnsafeArchiveError",
}


def test_each_refusal_is_broken_by_a_mutant(sources: Sources) -> None:
    every = [mutant for mutants in mutants_by_area().values() for mutant in mutants]
    found = list(sources.refusals(REFUSALS))
    assert len(found) >= 20
    missing = [
        f"{refusal.path.relative_to(ROOT)}:{refusal.lines.start} in {refusal.function}"
        for refusal in found
        if not any(refusal.is_broken_by(mutant, sources.text_of(refusal.path)) for mutant in every)
    ]
    assert missing == []


def checkout(folder: Path, **files: str) -> Sources:
    for number, (name, text) in enumerate(files.items()):
        place = folder / ("am", "container")[number % 2] / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return Sources(folder)


CLASS = """
class A:
    def f(self, x):
        if x < 1:
            return 1
        return x

    def g(self, x):
        return x < 1
"""


def test_a_mutant_is_found_by_function_and_text_wherever_they_stand(tmp_path: Path) -> None:
    mutant = Mutant("A.f", "x < 1", "x <= 1")
    sources = checkout(tmp_path, a="x = 1\n", b=CLASS)
    place = sources.place_of(mutant)
    assert place.path == tmp_path / "container" / "b.py"
    assert place.mutated(CLASS, mutant) == CLASS.replace("if x < 1", "if x <= 1")


@pytest.mark.parametrize(
    ("mutant", "times"),
    [(Mutant("A.h", "x < 1", ""), 0), (Mutant("A.f", "x < 2", ""), 0), (Mutant("A", "x < 1", ""), 4)],
)
def test_one_that_does_not_apply_exactly_once_is_named(tmp_path: Path, mutant: Mutant, times: int) -> None:
    sources = checkout(tmp_path, a=CLASS, b=CLASS)
    with pytest.raises(MutantDoesNotApplyError, match=f"stands {times} times"):
        sources.place_of(mutant)


def test_the_table_counts_outcomes_and_keeps_the_rows_of_other_areas(tmp_path: Path) -> None:
    mutant = Mutant("A.f", "x", "y", killer="t")
    killed, survived = Result(mutant, Outcome.KILLED), Result(mutant, Outcome.SURVIVED)
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- mutants: written by bench/mutants -->\nold\n<!-- end of mutants -->\nafter\n"
    )
    store(page, {"timers": row("timers", [killed], "abc"), "credit": row("credit", [killed], "abc")})
    store(page, {"credit": row("credit", [killed, survived], "def")})
    text = page.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("\nafter\n")
    rows = stored_rows(page)
    assert list(rows) == ["credit", "timers"]
    assert rows["credit"].startswith("| credit | def, ") and rows["credit"].endswith(" | 2 | 1 | 1 | 0 | 0 |")
    assert rows["timers"].startswith("| timers | abc, ") and rows["timers"].endswith(" | 1 | 1 | 0 | 0 | 0 |")
    assert "| all |  | 3 | 2 | 1 | 0 | 0 |" in text


def test_a_busy_machine_kills_no_mutant() -> None:
    mutant = Mutant("A.f", "x", "y", killer="t")

    def ended(status: int | None) -> CompletedProcess[str] | None:
        return None if status is None else CompletedProcess([], status, "said", "")

    def outcome(with_mutant: int | None, without: int | None) -> Outcome:
        return judged(mutant, ended(with_mutant), lambda: ended(without)).outcome

    assert [outcome(1, None), outcome(0, None), outcome(4, None)] == [
        Outcome.KILLED,
        Outcome.SURVIVED,
        Outcome.BROKEN,
    ]
    # It hangs by the mutant, or would not end in any case.
    assert [outcome(None, 0), outcome(None, None), outcome(None, 1)] == [
        Outcome.KILLED,
        Outcome.BROKEN,
        Outcome.BROKEN,
    ]
