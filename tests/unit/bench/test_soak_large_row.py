"""The soak's large row: refused where memory is short, otherwise the suite's test with a row of that size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench import soak, soak_large_row
from bench.soak_results import ROOT, ResultsPage, Row

MEMINFO = "MemTotal:       24000000 kB\nMemAvailable:    {} kB\nBuffers: 1 kB\n"


def test_a_machine_without_the_memory_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = soak_large_row.run_large_row(1024, MEMINFO.format(4096 * 1024))
    assert row.outcome == "FAILED: needs 10240 MiB of memory, 4096 MiB are free"
    assert soak_large_row.available_mebibytes("nothing of the kind") == 0
    (row,) = soak_large_row.run_largest_value(MEMINFO.format(4096 * 1024))
    assert row.outcome == "FAILED: needs 9216 MiB of memory, 4096 MiB are free"


def test_the_test_of_the_suite_runs_with_the_row_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = str(tmp_path / "soak.md")
    asked: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def run_tests(arguments: Sequence[str], variables: Mapping[str, str]) -> list[Row]:
        asked.append((arguments, variables))
        return [Row("a large row", 1.0, "passed")]

    monkeypatch.setattr(soak_large_row, "run_tests", run_tests)
    monkeypatch.setattr(soak_large_row, "available_mebibytes", lambda meminfo: 1 << 20)
    assert soak.main(["--large-row", "--page", page]) == 0
    assert soak.main(["--large-row", "400", "--page", page]) == 0
    assert soak.main(["--largest-value", "--page", page]) == 0
    assert [variables for _, variables in asked] == [
        {"YARROW_LARGE_ROW_MEBIBYTES": "1024"},
        {"YARROW_LARGE_ROW_MEBIBYTES": "400"},
        {"YARROW_SOAK": "1"},
    ]
    assert asked[-1][0] == [soak_large_row.LARGEST_VALUE_TEST]
    assert "| a large row | 1 | 0 | 1 s | passed |" in capsys.readouterr().out
    assert [result.outcome for result in ResultsPage(tmp_path / "soak.md").results()] == ["passed"]


def test_it_names_a_test_that_there_is_and_the_variable_that_it_reads() -> None:
    text = (Path(ROOT) / soak_large_row.TEST).read_text()
    assert f"def {soak_large_row.NAME}" in text
    assert "YARROW_LARGE_ROW_MEBIBYTES" in text
    assert "YARROW_SOAK" in (Path(ROOT) / soak_large_row.LARGEST_VALUE_TEST).read_text()
