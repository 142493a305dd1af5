"""The table of targets: every row names a case, and what was missed is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.case import Case, Measure, Program
from bench.peers import programs
from bench.runner import Figures, all_cases, summary
from bench.targets import (
    BATCH,
    END,
    ENGINE,
    ONCE,
    SHORTER,
    STATE,
    Target,
    limit_row,
    row,
    shortened,
    shown,
    write,
)

OWN = Program("own", lambda size: [], (1, 2))
PEER = Program("peer", lambda size: [], (1, 2))


def rates(*values: float) -> Figures:
    return Figures(list(values), unit="records/s")


def test_rows_name_cases_and_all_peers_have_their_sizes() -> None:
    known = {case.name: case for case in all_cases()}
    for table in (ENGINE, STATE, BATCH):
        assert {target.case for target in table.targets} <= known.keys()
    names = {peer.name for case in known.values() for peer in case.peers}
    assert ONCE.keys() | SHORTER.keys() <= names


def test_peers_that_take_long_run_once() -> None:
    case = shortened(next(case for case in all_cases() if case.name == "keyed-rows"))
    assert {peer.name for peer in case.peers if peer.once} == {
        peer.name for peer in (*programs.BYTEWAX, programs.PYFLINK)
    }
    assert not case.program.once


def test_row_holds_rate_ratio_and_verdict() -> None:
    case = Case("c", OWN, (PEER,), at_least=(("peer", 0.6),))
    reached = row(
        Target("c", "the job"), case, summary(case, {"own": rates(2.4e6, 2.6e6), "peer": rates(4e6)})
    )
    assert reached == "| the job | 2.5 M/s | 2 | 8% |  | 0.625 x peer (4 M/s), wanted 0.6 | yes |"
    missed = row(Target("c", "the job"), case, summary(case, {"own": rates(2e6), "peer": rates(4e6)}))
    assert missed.endswith("| 0.5 x peer (4 M/s), wanted 0.6 | no |")


def test_row_of_a_limit_names_it_and_the_details() -> None:
    case = Case("c", Program("own", lambda size: [], (1,)), measure=Measure.REPORTED, at_most=20.0)
    own = Figures([12.0], unit="ms", details={"p50": 3.5, "parts": {"a": 1, "b c": 2}})
    assert row(Target("c", "p99"), case, summary(case, {"own": own})) == (
        "| p99 | 12 ms | 1 |  | at most 20 ms | p50 3.5. parts: a 1, `b c` 2 | yes |"
    )


def test_row_of_a_time_says_how_many_times_the_peers_it_may_take() -> None:
    once = Program("own", lambda size: [], (1,)), Program("peer", lambda size: [], (1,))
    case = Case("c", once[0], once[1:], measure=Measure.SECONDS, at_most_of=(("peer", 1.3),))
    for seconds, verdict in ((12.0, "yes"), (14.0, "no")):
        result = summary(case, {"own": Figures([seconds], unit="s"), "peer": Figures([10.0], unit="s")})
        cells = f"{seconds / 10:g} x peer (10 s), wanted at most 1.3 | {verdict} |"
        assert row(Target("c", "flights"), case, result).endswith(cells)


def test_row_tells_the_cold_starts_of_programs_that_run_twice() -> None:
    own = Figures([2e6], unit="records/s", details={"cold_s": 9.5})
    peer = Figures([1e6], unit="records/s", details={"cold_s": 12.0})
    case = Case("c", OWN, (PEER,), at_least=(("peer", 2.0),))
    text = row(Target("c", "the job"), case, summary(case, {"own": own, "peer": peer}))
    assert "| 2 M/s; cold 9.5 s |" in text and "2 x peer (1 M/s; cold 12 s), wanted 2 | yes |" in text


def test_row_says_what_the_program_itself_named_as_missed() -> None:
    case = Case("c", Program("own", lambda size: [], (1,)), measure=Measure.REPORTED, at_most=20.0)
    own = Figures([30.0], unit="ms", failed=["the rate was not kept"])
    assert row(Target("c", "p99"), case, summary(case, {"own": own})).endswith(
        "| no; the rate was not kept |"
    )


def test_failed_case_stays_in_the_table() -> None:
    assert row(Target("c", "the job"), Case("c", OWN), None) == "| the job | failed | | |  | | no |"


def test_bare_loop_is_held_against_the_best_form_of_bytewax() -> None:
    forms = {peer.name: rates(rate) for peer, rate in zip(programs.BYTEWAX, (4e5, 6e5, 5e5), strict=True)}
    case = Case("c", OWN, (programs.BARE_INTEGERS, *programs.BYTEWAX))
    line: dict[str, Any] = summary(
        case, {"own": rates(1e6), programs.BARE_INTEGERS.name: rates(4.2e6), **forms}
    )
    [text] = limit_row(line)
    assert "7.0 x Bytewax, 2 threads, wanted 8 | no" in text


def test_numbers_are_short() -> None:
    assert [shown(value, "records/s") for value in (35_100_000.0, 15_200.0, 12.0)] == [
        "35.1 M/s",
        "15.2 k/s",
        "12 /s",
    ]
    assert shown(2.345, "s") == "2.35 s"


def test_table_is_put_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{ENGINE.begin}\nold\n{END}\nafter\n")
    write(page, "new\n", ENGINE.begin)
    write(page, "newer\n", ENGINE.begin)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert "newer" in text and "old" not in text and text.count(ENGINE.begin) == text.count(END) == 1


def test_the_tables_of_a_page_leave_each_other_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write(page, "engine\n", ENGINE.begin)
    write(page, "state\n", STATE.begin)
    write(page, "engine again\n", ENGINE.begin)
    text = page.read_text()
    assert text.count("engine") == text.count("engine again") == 1
    assert (
        text.index(ENGINE.begin)
        < text.index("engine again")
        < text.index(STATE.begin)
        < text.index("state\n")
    )
