"""The benchmark runner's arithmetic, and that the programs which set the limit compute what they claim."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.case import PYTHON, Case, Measure, Program, peer
from bench.peers import programs
from bench.programs.rows import random_key
from bench.runner import (
    Figures,
    ProgramFailed,
    all_cases,
    available,
    chosen,
    measure_once,
    ratio,
    run_case,
    run_program,
    slope,
    summary,
)


def printing(text: str) -> Program:
    return Program("printer", lambda size: [sys.executable, "-c", f"print({text!r})"], (1,))


def figures(*values: float) -> Figures:
    return Figures(list(values), unit="records/s")


def test_figure_is_median_and_relative_spread() -> None:
    measured = figures(9.0, 10.0, 20.0)
    assert measured.median == 10.0
    assert measured.spread == pytest.approx(1.1)


def test_line_is_held_against_the_best_peer() -> None:
    slow, fast = Program("slow", lambda size: [], (1, 2)), Program("fast", lambda size: [], (1, 2))
    own = Program("own", lambda size: [], (1, 2))
    case = Case("c", own, (slow, fast), at_least=(("slow", 5), ("fast", 5)))
    line = summary(case, {"own": figures(100), "slow": figures(10), "fast": figures(25)})
    assert (line["name"], line["median"], line["peer"], line["ratio"]) == ("c", 100, "fast", 4)
    assert line["missed"] == ["fast: 4.0, wanted 5"]


def test_rate_is_the_slope_between_two_sizes() -> None:
    assert slope((100, 300), (1.0, 2.0)) == 200.0


@pytest.mark.parametrize("seconds", [(2.0, 2.0), (2.0, 1.0)])
def test_no_rate_where_noise_swallowed_the_difference(seconds: tuple[float, float]) -> None:
    assert slope((100, 300), seconds) is None


def test_void_rounds_leave_a_case_unproven() -> None:
    case = Case("c", Program("own", lambda size: [], (1, 2)))
    line = summary(case, {"own": Figures([10.0], void=1)})
    assert line["void"] == 1
    assert line["missed"] != []


def test_what_the_programs_read_is_there_before_the_first_of_them_runs(tmp_path: Path) -> None:
    made = tmp_path / "size"

    def prepare(size: int) -> list[str]:
        return [sys.executable, "-c", f"open({str(made)!r}, 'x').write('{size}')"]

    reads = f"print('{{\"value\": ' + open({str(made)!r}).read() + '}}')"
    own = Program("own", lambda size: [sys.executable, "-c", reads], (1, 3))
    case = Case("c", own, measure=Measure.REPORTED, prepare=prepare)
    assert run_case(case, 2)["values"] == [3.0, 3.0]


def test_limit_on_a_time_is_kept_or_missed() -> None:
    case = Case("c", Program("own", lambda size: [], (1,)), measure=Measure.SECONDS, at_most=2.5)
    assert summary(case, {"own": figures(2.0)})["missed"] == []
    assert summary(case, {"own": figures(3.0)})["missed"] != []


def test_time_of_so_many_times_a_peers_is_kept_or_missed() -> None:
    own, fast, slow = (Program(name, lambda size: [], (1,)) for name in ("own", "fast", "slow"))
    case = Case("c", own, (fast, slow), measure=Measure.SECONDS, at_most_of=(("fast", 1.3), ("slow", 1.3)))
    line = summary(case, {"own": figures(3.0), "fast": figures(2.0), "slow": figures(4.0)})
    # The best peer is the one that takes the least time.
    assert (line["peer"], line["missed"]) == ("fast", ["fast: 1.5, wanted at most 1.3"])


def test_reported_value_and_unit_are_taken_from_the_last_line() -> None:
    taken = Figures()
    measure_once(printing('noise\n{"value": 12.5, "unit": "ms"}'), Measure.REPORTED, taken)
    assert (taken.values, taken.unit) == ([12.5], "ms")


def test_program_without_a_value_is_named() -> None:
    with pytest.raises(ProgramFailed, match="printer"):
        measure_once(printing("nothing"), Measure.REPORTED, Figures())


def test_failed_program_shows_its_error() -> None:
    with pytest.raises(ProgramFailed, match="the reason"):
        run_program([sys.executable, "-c", "raise SystemExit('the reason')"])


def test_peers_that_are_not_installed_are_left_out_with_their_goals() -> None:
    lost = peer("bytewax_job.py", name="lost", sizes=(1, 2), python="no/such/python")
    kept = peer("bare_loop.py", name="kept", sizes=(1, 2), python=PYTHON)
    case, names = available(Case("c", kept, (lost, kept), at_least=(("lost", 5), ("kept", 1))))
    assert names == ["lost"]
    assert case is not None
    assert (case.peers, case.at_least) == ((kept,), (("kept", 1),))


def test_names_of_cases_are_unique_and_their_goals_name_peers() -> None:
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        goals = (*case.at_least, *case.at_most_of)
        assert {name for name, _ in goals} <= {program.name for program in case.peers}
        assert len(case.program.sizes) == (2 if case.measure is Measure.RATE else 1)


def test_unknown_case_is_refused_by_name() -> None:
    with pytest.raises(SystemExit, match="no-such-case"):
        chosen(all_cases(), ["no-such-case"])


@pytest.mark.parametrize("variant", ["integers", "orders"])
def test_bare_loop_keeps_every_second_sum_of_a_key(variant: str) -> None:
    run = run_program(programs.bare_loop(variant, (1, 2)).command(20_000))
    assert json.loads(run.output) == {"records": 20_000, "kept": 10_000}


def test_bare_loop_with_distinct_keys_keeps_none() -> None:
    run = run_program(programs.BARE_STRINGS.command(20_000))
    assert json.loads(run.output) == {"records": 20_000, "kept": 0}


@pytest.mark.slow
def test_bare_rocksdb_keeps_every_second_sum_of_a_key() -> None:
    # Three times as many records are there before what counts.
    run = run_program(programs.BARE_ROCKSDB.command(50_000))
    counts = Counter(random_key(x) for x in range(200_000))
    kept = sum(count // 2 for count in counts.values())
    assert kept > 1000 and json.loads(run.output)["kept"] == kept


@pytest.mark.slow
@pytest.mark.parametrize("merge", ["dict", "sorted"])
def test_bare_columnar_loses_no_row(merge: str) -> None:
    run = run_program(programs.bare_columnar(7_000, 4_096, merge, (1, 2)).command(50_001))
    assert json.loads(run.output) == {"rows": 50_001, "total": 50_001}


def test_ratio_of_pairs_is_the_median_of_the_rounds() -> None:
    own, other = Figures([1.0, 8.0, 3.0]), Figures([2.0, 8.0, 4.0])
    assert ratio(own, other, paired=True) == 0.75
    assert ratio(own, other, paired=False) == 0.75
    assert ratio(Figures([1.0, 8.0, 9.0]), Figures([2.0, 8.0, 18.0]), paired=True) == 0.5
    # A round that gave no number leaves no pairs.
    assert ratio(Figures([1.0, 3.0]), other, paired=True) == 0.5
