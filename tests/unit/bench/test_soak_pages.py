"""The soak's pages: which test runs, how often it loads each page, and that its outcome is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench import soak, soak_pages
from bench.soak_results import ROOT, ResultsPage, Row


def test_each_page_is_loaded_as_often_as_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "soak.md"
    asked: list[tuple[Sequence[str], Mapping[str, str], float]] = []

    def run_tests(arguments: Sequence[str], variables: Mapping[str, str], limit: float) -> list[Row]:
        asked.append((arguments, variables, limit))
        return [Row("pages", 1.0, "passed")]

    monkeypatch.setattr(soak_pages, "run_tests", run_tests)
    assert soak.main(["--pages", "--page", str(page)]) == 0
    assert soak.main(["--pages", "3", "--page", str(page)]) == 0
    rounds = [{"YARROW_SOAK": "1", "YARROW_PAGES_ROUNDS": number} for number in ("1", "3")]
    assert [variables for _, variables, _ in asked] == rounds
    assert asked[1][2] == 3 * asked[0][2]
    assert [(result.test, result.runs) for result in ResultsPage(page).results()] == [("pages", 2)]
    assert "| - | pages | 1 | 0 | 1 s | passed |" in capsys.readouterr().out


def test_no_round_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(["--pages", "0"])
    assert "--pages takes 1 round or more, not 0" in capsys.readouterr().err


def test_it_names_a_test_that_there_is_and_the_variables_that_it_reads() -> None:
    text = (ROOT / soak_pages.TEST).read_text()
    assert "YARROW_SOAK" in text and "YARROW_PAGES_ROUNDS" in text
