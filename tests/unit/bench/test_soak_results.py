"""What the soak has found is in a page: in order, the last outcome of each test, and no other text is touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.soak_results import BEGIN, END, PAGE, Result, ResultsPage, Row, present_commit, report

DAY, COMMIT = "2026-11-21", "abc1234"


def result(name: str, outcome: str = "passed", date: str = DAY) -> Result:
    return Result.of(Row(name, 61.4, outcome), date, COMMIT)


def test_results_are_stored_as_they_come(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ResultsPage(tmp_path / "soak.md")

    def rows() -> Iterator[Row]:
        yield Row("test_masters test_4_all_attempts", 35.2, "passed")
        assert [stored.took for stored in page.results()] == ["35 s"]
        yield Row("test_storage test_14_the_data_node", 1.0, "FAILED: a | b")

    assert report(rows(), page, COMMIT) == 1
    assert [(stored.fault, stored.outcome, stored.commit) for stored in page.results()] == [
        ("4", "passed", COMMIT),
        ("14", "FAILED: a / b", COMMIT),
    ]
    assert "| 4 | test_masters test_4_all_attempts | 1 | 0 | 35 s | passed |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["passed"], 0),
        (["passed", "skipped: no java"], 0),
        (["skipped: no java"], 1),
        ([], 1),
        (["FAILED: x"], 1),
    ],
)
def test_the_status_tells_of_failures_and_of_runs_that_show_nothing(
    tmp_path: Path, outcomes: list[str], status: int
) -> None:
    rows = [Row(f"a test {number}", 1.0, outcome) for number, outcome in enumerate(outcomes)]
    assert report(rows, ResultsPage(tmp_path / "soak.md"), COMMIT) == status


def test_what_is_no_test_fails_the_run_and_is_not_stored(tmp_path: Path) -> None:
    page = ResultsPage(tmp_path / "soak.md")
    rows = [
        Row("a test", 1.0, "passed"),
        Row("tests.yarn.x", 0.0, "FAILED: collection failure", is_test=False),
    ]
    assert report(rows, page, COMMIT) == 1
    assert [stored.test for stored in page.results()] == ["a test"]


def test_a_later_run_adds_to_the_earlier_ones(tmp_path: Path) -> None:
    path = tmp_path / "soak.md"
    path.write_text(f"# Title\n\n{BEGIN}\n{END}\n\n## After it\n")
    page = ResultsPage(path)
    page.put([result("m test_9_a", "FAILED: x"), result("m test_2_b")])
    page.put([result("m test_9_a", "passed", "2026-11-22")])
    assert [(stored.test, stored.outcome, stored.date) for stored in page.results()] == [
        ("m test_2_b", "passed", DAY),
        ("m test_9_a", "passed", "2026-11-22"),
    ]
    stored = page.results()[1]
    assert (stored.runs, stored.failed, stored.last_failure) == (2, 1, f"{DAY} {COMMIT}: x")
    page.put([result("m test_9_a", "FAILED: y", "2026-11-23")])
    assert page.results()[1].runs == 3 and page.results()[1].last_failure == f"2026-11-23 {COMMIT}: y"
    text = path.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n| fault |")
    assert text.endswith(f"{END}\n\n## After it\n")


def test_numbered_faults_come_first_and_the_nemesis_last_by_seed(tmp_path: Path) -> None:
    page = ResultsPage(tmp_path / "soak.md")
    names = [
        "test_nemesis test_nemesis_on_yarn[10], 25 s",
        "test_nemesis test_nemesis_on_yarn[9], 25 s",
        "test_modes test_idle",
        "test_coordination test_24_cut_off[requests]",
        "test_task_executors test_2_burst",
    ]
    page.put(result(name) for name in names)
    assert [stored.test for stored in page.results()] == [*reversed(names[2:]), names[1], names[0]]
    assert [stored.fault for stored in page.results()] == ["2", "24", "-", "nemesis", "nemesis"]


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "soak.md"
    path.write_text(f"{BEGIN}\n| half a line |\n{END}\n")
    with pytest.raises(ValueError, match="half a line"):
        ResultsPage(path).results()


def test_the_projects_page_can_be_read() -> None:
    stored = ResultsPage(PAGE).results()
    assert len({one.test for one in stored}) == len(stored) > 20


def test_the_present_commit_is_a_short_one() -> None:
    assert present_commit() == "unknown" or 7 <= len(present_commit().rstrip("+")) <= 12
