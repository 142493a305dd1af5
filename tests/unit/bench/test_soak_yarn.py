"""Rows of bench/soak --yarn: every test has one, whatever came of it, and a failure shows."""

from __future__ import annotations

import pytest

from bench.soak_yarn import Row, print_rows, rows_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.yarn.faults.test_storage" name="test_14" time="12.4"/>
<testcase classname="tests.yarn.faults.test_storage" name="test_19" time="3.0">
  <failure message="AssertionError: not within 120 s&#10;more">text</failure></testcase>
<testcase classname="tests.yarn.faults.test_storage" name="test_20" time="1.0"><skipped message="no"/></testcase>
<testcase classname="tests.yarn.faults.test_masters" name="test_4" time="2.0"/>
<testcase classname="tests.yarn.faults.test_masters" name="test_4" time="0.5">
  <error message="failed on teardown"/></testcase>
</testsuite></testsuites>"""


def test_each_test_is_a_row_with_what_came_of_it() -> None:
    assert rows_of(REPORT) == [
        Row("test_storage test_14", 12.4, "passed"),
        Row("test_storage test_19", 3.0, "FAILED: AssertionError: not within 120 s"),
        Row("test_storage test_20", 1.0, "skipped"),
        Row("test_masters test_4", 0.5, "FAILED: failed on teardown"),
    ]


def test_a_failure_and_an_empty_run_are_told_by_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    passed, failed = Row("a", 1.0, "passed"), Row("b", 61.4, "FAILED: x")
    assert print_rows([passed]) == 0
    assert print_rows([passed, failed]) == 1
    assert "| b | 61 s | FAILED: x |" in capsys.readouterr().out
    assert print_rows([]) == 1
