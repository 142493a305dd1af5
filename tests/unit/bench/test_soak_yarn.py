"""Rows of bench/soak --yarn: every test has one, whatever came of it, and whom its clusters belong to."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import soak_yarn
from bench.soak_results import Row
from bench.soak_yarn import rows_of

REPORT = """<testsuites><testsuite>
<testcase classname="tests.yarn.faults.test_storage" name="test_14" time="12.4"/>
<testcase classname="tests.yarn.faults.test_storage" name="test_19" time="3.0">
  <failure message="AssertionError: not within 120 s&#10;more">text</failure></testcase>
<testcase classname="tests.yarn.faults.test_storage" name="test_20" time="1.0"><skipped message="no"/></testcase>
<testcase classname="tests.yarn.faults.test_masters" name="test_4" time="2.0"/>
<testcase classname="tests.yarn.faults.test_masters" name="test_4" time="0.5">
  <error message="failed on teardown"/></testcase>
<testcase classname="" name="tests.yarn.test_x" time="0"><error message="collection failure"/></testcase>
</testsuite></testsuites>"""
#: Stands for a run of pytest: writes a report that names the shared cluster it sees, or none.
NAMES_THE_CLUSTER = """
import os, sys
(option,) = [word for word in sys.argv if word.startswith("--junitxml=")]
with open(option.partition("=")[2], "w") as report:
    case = os.environ.get("YARROW_HADOOP_DIRECTORY", "none"), os.environ["YARROW_NEMESIS_SEEDS"]
    report.write('<testsuite><testcase classname="a.cluster" name="%s seeds %s" time="1"/></testsuite>' % case)
"""

#: The same, once whoever runs it has been told to end and has told it.
IS_INTERRUPTED = """
import os, signal, time
try:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
    raise SystemExit(3)
except KeyboardInterrupt:
    pass
"""


def test_each_test_is_a_row_with_what_came_of_it() -> None:
    assert rows_of(REPORT) == [
        Row("test_storage test_14", 12.4, "passed"),
        Row("test_storage test_19", 3.0, "FAILED: AssertionError: not within 120 s"),
        Row("test_storage test_20", 1.0, "skipped: no"),
        Row("test_masters test_4", 0.5, "FAILED: failed on teardown"),
        Row("tests.yarn.test_x", 0.0, "FAILED: collection failure", is_test=False),
    ]


def test_a_cluster_that_others_use_is_not_the_soaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text(NAMES_THE_CLUSTER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("YARROW_HADOOP_DIRECTORY", "/of/everybody")
    monkeypatch.setattr(soak_yarn, "ROOT", tmp_path)
    rows = list(soak_yarn.run_nemesis(3, 5, 25.0))
    assert rows == [
        Row("cluster none seeds 3,4,5,6, 25 s", 1.0, "passed"),
        Row("cluster none seeds 7, 25 s", 1.0, "passed"),
    ]


def test_who_ends_the_soak_ends_its_tests_in_order_and_keeps_their_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pytest.py").write_text(IS_INTERRUPTED + NAMES_THE_CLUSTER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(soak_yarn, "ROOT", tmp_path)
    assert soak_yarn.run_tests(["some tests"], {"YARROW_NEMESIS_SEEDS": "1"})[0].outcome == "passed"


def test_a_run_that_leaves_no_report_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(soak_yarn, "ROOT", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert soak_yarn.run_tests(["some tests"], {}) == [
        Row("some tests", 0.0, "FAILED: pytest ended with 3", False)
    ]
