"""Times of tests by parts of the product: files have their part, and parts the time that a run gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.suite_times import Measured, Run, Taken, by_part, clock, part_of, read, report

RECORD = """<?xml version="1.0" encoding="utf-8"?>
<testsuites name="pytest tests"><testsuite name="pytest" tests="2" time="90.5">
<testcase classname="tests.kafka.test_topics" name="test_a[1]" time="30.25">
<properties><property name="other" value="x"/><property name="cpu_seconds" value="4.5"/></properties></testcase>
<testcase classname="tests.unit.am.test_slots.TestSlots" name="test_b" time="0.5"/>
</testsuite></testsuites>
"""


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("tests/spark/test_sql.py", "batch on Spark"),
        ("tests/yarn/batch/test_spark_drivers.py", "batch on Spark"),
        ("tests/kafka/test_three_nodes.py", "Kafka"),
        ("tests/unit/cep/test_matching.py", "windows"),
        ("tests/unit/container/operators/window/test_session_rules.py", "windows"),
        ("tests/unit/container/operators/event_time_order/test_rows_by_time.py", "windows"),
        ("tests/unit/container/batch/test_columnar_windows.py", "windows"),
        ("tests/unit/datastream/test_as_of_join.py", "windows"),
        ("tests/unit/datastream/test_columnar_as_of_join.py", "windows"),
        ("tests/harness/test_sessions_restored.py", "windows"),
        ("tests/harness/test_loops.py", "windows"),
        ("tests/harness/test_async_retries.py", "windows"),
        ("tests/cluster/embedded/test_windows.py", "windows"),
        ("tests/fault/test_operator_fault_plans.py", "windows"),
        ("tests/format/test_windows_version_1.py", "windows"),
        ("tests/yarn/test_sessions.py", "all other tests"),
        ("tests/harness/test_unaligned_checkpoints.py", "all other tests"),
        ("tests/unit/container/codegen/test_collecting_loops.py", "all other tests"),
        ("tests/unit/cli/test_session_without_hadoop.py", "all other tests"),
        ("tests/fault/test_fault_plans.py", "all other tests"),
    ],
)
def test_each_file_has_its_part(file: str, part: str) -> None:
    assert part_of(file).name.partition(",")[0] == part


def test_a_record_is_read(tmp_path: Path) -> None:
    record = tmp_path / "units.xml"
    record.write_text(RECORD)
    assert read(record) == Run(
        "units",
        90.5,
        [
            Measured("tests/kafka/test_topics.py", "test_a[1]", 30.25, 4.5),
            Measured("tests/unit/am/test_slots.py", "test_b", 0.5, 0.0),
        ],
    )


@pytest.mark.parametrize(("text", "why"), [("", "no element found"), ("<a/>", "it has no element testsuite")])
def test_another_file_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    record = tmp_path / "units.xml"
    record.write_text(text)
    with pytest.raises(ValueError, match=f"units.xml is no record of scripts/test: {why}"):
        read(record)


def test_parts_share_the_time_of_a_run() -> None:
    # Two processes ran 40 seconds of tests in 30 seconds.
    first = Run(
        "a",
        30.0,
        [Measured("tests/kafka/test_a.py", "a", 10, 2), Measured("tests/unit/test_b.py", "b", 30, 3)],
    )
    second = Run("b", 5.0, [Measured("tests/kafka/test_c.py", "c", 1, 1)])
    taken = by_part([first, second])
    assert taken["Kafka"] == Taken(2, 12.5, 3)
    assert taken["all other tests"] == Taken(1, 22.5, 3)
    assert taken["batch on Spark"] == Taken(0, 0, 0)


def test_the_report_names_what_is_too_long_for_the_quick_part() -> None:
    tests = [
        Measured("tests/unit/test_a.py", "test_short", 5.0, 1.0),
        Measured("tests/unit/test_a.py", "test_long", 1.2, 1.1),
    ]
    lines = list(report([Run("quick", 6.2, tests)]))
    assert "    1.1  tests/unit/test_a.py::test_long" in lines
    assert not any("test_short" in line for line in lines)
    assert not any("test_long" in line for line in report([Run("units", 6.2, tests)]))


def test_times_are_told_in_minutes() -> None:
    assert [clock(seconds) for seconds in (0.4, 59.6, 605.0)] == ["0:00", "1:00", "10:05"]
