"""Rows of bench/soak --yarn: every test has one as soon as it ends, whatever came of it; whom clusters belong to, and
how tests are divided over two of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import soak_runs, soak_yarn
from bench.soak_results import ROOT, Row
from bench.soak_runs import run_side_by_side, run_tests
from bench.soak_yarn import divided

#: Stands for a run of pytest: tells of the shared cluster it sees, or of none.
NAMES_THE_CLUSTER = """
import json, os
name = "cluster %s seeds %s" % (os.environ.get("YARROW_HADOOP_DIRECTORY"), os.environ["YARROW_NEMESIS_SEEDS"])
with open(os.environ["YARROW_SOAK_OUTCOMES"], "a") as outcomes:
    row = {"name": name, "seconds": 1.0, "outcome": "passed", "is_test": True}
    outcomes.write(json.dumps(row) + chr(10))
"""
#: The same; then whoever runs it is told to end, and has to tell it.
IS_INTERRUPTED = f"""
{NAMES_THE_CLUSTER}
import os, signal, time
try:
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(60)
    raise SystemExit(3)
except KeyboardInterrupt:
    open("ended-in-order", "w").close()
"""
#: Tests of every outcome.
TESTS = """
import json, time
import pytest

@pytest.fixture
def leaves_something():
    yield
    assert False, "the test left a file"

def test_passes():
    pass

def test_fails():
    print("the log of a container")
    raise ValueError("not within 120 s\\nmore")

def test_is_skipped():
    pytest.skip("no java")

def test_leaves(leaves_something):
    pass

def test_hangs():
    try:
        time.sleep(60)
    except Exception:
        pass
"""


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where tests are run, and modules are looked for first."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setattr(soak_runs, "ROOT", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_each_test_is_a_row_with_what_came_of_it(root: Path) -> None:
    (root / "test_all.py").write_text(TESTS)
    (root / "test_broken.py").write_text("import no_such_module")
    first, *rows = [
        Row(row.name, 0.0, row.outcome, row.is_test)
        for row in run_tests(["--continue-on-collection-errors", "-p", "no:cacheprovider"], {}, limit=3.0)
    ]
    assert first.name == "test_broken.py" and first.outcome.startswith("FAILED: ") and not first.is_test
    assert rows == [
        Row("test_all test_passes", 0.0, "passed"),
        Row("test_all test_fails", 0.0, "FAILED: ValueError: not within 120 s"),
        Row("test_all test_is_skipped", 0.0, "skipped: no java"),
        Row("test_all test_leaves", 0.0, "FAILED: teardown: AssertionError: the test left a file"),
        Row("test_all test_hangs", 0.0, "FAILED: Failed: the test has not ended within 3 s"),
    ]
    kept = soak_runs.reports_folder()
    assert {path.name for path in kept.iterdir()} == {
        "test_broken.log",
        "test_all-test_fails.log",
        "test_all-test_leaves.log",
        "test_all-test_hangs.log",
        "pytest-1.log",
    }
    assert "the log of a container" in (kept / "test_all-test_fails.log").read_text()


@pytest.mark.slow
def test_rows_come_while_others_run(root: Path) -> None:
    waits = "import os, time\ndef test_%s():\n    while not os.path.exists('go'): time.sleep(0.01)\n"
    (root / "test_slow.py").write_text(waits % "slow")
    (root / "test_fast.py").write_text("def test_fast(): pass\n")
    rows = run_side_by_side([["test_slow.py"], ["test_fast.py"]], {})
    assert next(iter(rows)).name == "test_fast test_fast"
    (root / "go").touch()
    assert [row.name for row in rows] == ["test_slow test_slow"]


def test_a_cluster_that_others_use_is_not_the_soaks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "pytest.py").write_text(NAMES_THE_CLUSTER)
    monkeypatch.setenv("YARROW_HADOOP_DIRECTORY", "/of/everybody")
    assert list(soak_yarn.run_nemesis(3, 5, 25.0)) == [
        Row("cluster None seeds 3,4,5,6, 25 s", 1.0, "passed"),
        Row("cluster None seeds 7, 25 s", 1.0, "passed"),
    ]


def test_who_ends_the_soak_ends_its_tests_in_order_and_keeps_their_results(root: Path) -> None:
    (root / "pytest.py").write_text(IS_INTERRUPTED)
    rows = run_tests(["some tests"], {"YARROW_NEMESIS_SEEDS": "1"})
    assert next(iter(rows)).outcome == "passed"
    with pytest.raises(KeyboardInterrupt):
        next(iter(rows))
    assert (root / "ended-in-order").exists()


def test_a_run_that_tells_of_no_test_has_failed(root: Path) -> None:
    (root / "pytest.py").write_text("raise SystemExit(3)")
    (row,) = run_tests(["some tests"], {})
    assert (row.name, row.is_test) == ("some tests", False)
    assert row.outcome.startswith("FAILED: pytest ended with 3 after 0 tests, see ")


def test_files_are_divided_by_what_they_took() -> None:
    tests = [
        "a/test_1.py::one",
        "a/test_1.py::two",
        "a/test_2.py::one",
        "b/test_3.py::one",
        "b/test_4.py::one",
    ]
    known = {"test_1 one": 100.0, "test_1 two": 20.0, "test_2 one": 90.0, "test_3 one": 45.0}
    assert divided(tests, known, 2) == [
        ["a/test_1.py::one", "a/test_1.py::two", "b/test_3.py::one"],
        ["a/test_2.py::one", "b/test_4.py::one"],
    ]
    assert divided(tests[:1], known, 2) == [tests[:1]]
