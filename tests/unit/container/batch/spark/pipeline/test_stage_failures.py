"""What a user reads of a failed stage: the own traceback first, no trace of Java, and the remedy of a full storage."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException

from yarrow.container.batch.spark.pipeline.stage_disks import StageDisks, StageOutput
from yarrow.container.batch.spark.pipeline.stage_failures import cause_of
from yarrow.container.batch.spark.pipeline.stage_failures import not_written as told_not_written

_JAVA = """ SQLSTATE: 38000
	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
	at java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
"""
_UDF = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/python/site-packages/pyspark/worker.py", line 3370, in main
    process()
  File "/work/job.py", line 12, in parse
    return int(text)
           ^^^^^^^^^
ValueError: invalid literal
for int
"""


def not_written(stage: str, name: str, path: str, error: BaseException) -> BaseException:
    output = StageOutput(name, path, f"{path}.hidden", is_temporary=False)
    return told_not_written(
        stage, output, error, StageDisks([output], lambda text: "the disk of Spark is full")
    )


def raised(error: BaseException) -> BaseException:
    """The error with a frame of this file."""
    try:
        raise error
    except BaseException as caught:
        return caught


def test_a_function_that_spark_calls_shows_its_own_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "yarrow.container.batch.spark.pipeline.stage_failures"
    monkeypatch.setattr(f"{module}._PACKAGES", ("/opt/python/site-packages/pyspark",))
    cause = cause_of("parse all", raised(PythonException(message=_UDF + _JAVA)))
    assert cause.stacktrace == (
        "Traceback (most recent call last):\n"
        '  File "/work/job.py", line 12, in parse\n'
        "    return int(text)\n"
        "           ^^^^^^^^^\n"
        "ValueError: invalid literal\nfor int\n"
        "  in stage 'parse all'\n"
    )
    assert (cause.exception_name, cause.operator_name) == ("ValueError", "parse all")


def test_what_spark_refuses_shows_the_line_of_the_program() -> None:
    text = "[UNRESOLVED_COLUMN] A column cannot be resolved.;\n'Project ['x]\n\nJVM stacktrace:\norg.apache.spark.X"
    cause = cause_of("read", raised(AnalysisException(message=text)))
    first, *_, last = cause.stacktrace.splitlines()
    assert first == "Traceback (most recent call last):"
    assert "in raised" in cause.stacktrace
    assert (
        "AnalysisException: [UNRESOLVED_COLUMN] A column cannot be resolved.;\n'Project ['x]"
        in cause.stacktrace
    )
    assert last == "  in stage 'read'"
    assert "JVM" not in cause.stacktrace


def test_a_plain_error_is_the_users_own() -> None:
    cause = cause_of("read", raised(KeyError("day")))
    assert cause.stacktrace.endswith("KeyError: 'day'\n  in stage 'read'\n")
    assert (cause.exception_name, cause.message) == ("builtins.KeyError", "'day'")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "File /x could only be written to 0 of the 1 minReplication nodes",
            "the storage is full, or a quota is used up: make room",
        ),
        ("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The", "a quota is used up"),
        ("Cannot create file /x. Name node is in safe mode.", "HDFS is in safe mode, and takes nothing"),
        ("Unsupported type: array", "Unsupported type: array"),
        (
            "Job aborted due to stage failure: Task 1 in stage 8.0 failed 1 times, most recent failure: Lost task 1.0"
            " in stage 8.0 (TID 17) (localhost executor driver): org.apache.spark.SparkException: Python worker exited"
            " unexpectedly (crashed). Consider setting 'x' to 'true'.",
            "hdfs://name:8020/out: a Python process of Spark has died while it ran a function of the stage",
        ),
        (
            '[UNSUPPORTED_CALL.WITHOUT_SUGGESTION] Cannot call the method "getInt" of the class'
            ' "org.apache.spark.sql.vectorized.ArrowColumnVector$ArrowVectorAccessor".',
            "gave a column of another type than its schema. Cast the column",
        ),
    ],
)
def test_an_output_that_was_not_written_is_told_with_its_path(text: str, told: str) -> None:
    error: Any = not_written("load", "out", "hdfs://name:8020/out", AnalysisException(message=text + _JAVA))
    assert str(error).startswith("Stage 'load': its output 'out' was not written to hdfs://name:8020/out: ")
    assert told in str(error)
    assert "Exception" not in str(error)


def test_an_error_of_the_users_function_stays_that() -> None:
    error = PythonException(message=_UDF + _JAVA)
    assert not_written("load", "out", "/out", error) is error


def test_what_pyspark_says_of_a_functions_results_has_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "yarrow.container.batch.spark.pipeline.stage_failures"
    monkeypatch.setattr(f"{module}._PACKAGES", ("/opt/python/site-packages/pyspark",))
    refused = "pyspark.errors.exceptions.base.PySparkRuntimeError: [RESULT_COLUMN_NAMES_MISMATCH] Missing: a."
    before, parse, _ = _UDF.partition('  File "/work/job.py"')
    assert parse
    error = PythonException(message=f"{before}{refused}\n{_JAVA}")
    assert not_written("load", "out", "/out", error) is error
    cause = cause_of("load", raised(error))
    assert (
        cause.stacktrace
        == "PySparkRuntimeError: [RESULT_COLUMN_NAMES_MISMATCH] Missing: a.\n  in stage 'load'\n"
    )


def test_a_file_that_cannot_be_read_is_told_with_the_reason() -> None:
    read = ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file /x."
    causes = (
        "Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error.\n\tat a.B(C)\n"
        "Caused by: java.lang.RuntimeException: /x is no Parquet file: too short\n\tat a.B(C)\n"
        "Caused by: java.io.EOFException: more\n"
    )
    error = AnalysisException(message=f"An error occurred while calling o1.save.\n{read}{_JAVA}{causes}")
    told = (
        "Stage 'load': its output 'out' was not written to /out: [FAILED_READ_FILE.NO_HINT] Encountered error"
    )
    assert (
        str(not_written("load", "out", "/out", error))
        == f"{told} while reading file /x. SQLSTATE: 38000\n/x is no Parquet file: too short"
    )


def test_notes_of_an_error_of_spark_are_told_behind_it() -> None:
    error = AnalysisException(message="Job aborted")
    error.add_note("the disk is full")
    cause = cause_of("load", error)
    assert cause.message == "Job aborted\nthe disk is full"
    assert cause.stacktrace == "AnalysisException: Job aborted\nthe disk is full\n  in stage 'load'\n"
