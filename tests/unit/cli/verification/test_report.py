"""The text of a comparison: what its keys are, and which job was compared."""

from __future__ import annotations

import pytest

from yarrow.cli.verification.comparison import KeyDifference, SinkComparison
from yarrow.cli.verification.report import ModesReport, SinkReport, text_of


def test_the_last_line_names_the_only_job_that_was_compared() -> None:
    lines = text_of(ModesReport("job", "local-1", [SinkReport("out", SinkComparison((1, 1)))])).splitlines()
    assert lines[-1] == "The modes are equal. The first job alone was compared."


@pytest.mark.parametrize(
    ("of_results", "told"),
    [(True, "first key, by its selector on the results: 'a'"), (False, "first key: 'a'")],
)
def test_a_key_that_the_results_tell_is_told_so(of_results: bool, told: str) -> None:
    differs = SinkComparison((1, 1), 1, KeyDifference("'a'", False, ["1"], ["2"], (1, 1), (1, 1)))
    lines = text_of(ModesReport("job", "local-1", [SinkReport("out", differs, (), of_results)])).splitlines()
    assert lines[2].strip() == told
    assert lines[-1] == "The modes differ in 1 of 1 sink. The first job alone was compared."
