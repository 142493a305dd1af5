"""What a failed run of Spark says in short."""

from __future__ import annotations

import pytest

from yarrow.state_processor.spark.spark_failures import told_in_short

_HEAD = """An error occurred while calling o71.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1830, in main
    process()
"""
_TAIL = """

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:601)
	at java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
	at org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
"""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("ValueError: no rate for 0", "no rate for 0"),
        ("job.RateMissing: no rate for 0", "no rate for 0"),
        ("__main__.rate.<locals>.Gone: no rate for 0", "no rate for 0"),
        ("job.RateMissing", "job.RateMissing"),
        ("job.RateMissing: no rate:\n  of 0\n\nnor of 1", "no rate: of 0 nor of 1"),
        ("KeyError: 'a: b'", "'a: b'"),
        (
            "KeyError: 0\n\nDuring handling of the above exception, another exception occurred:\n\n"
            'Traceback (most recent call last):\n  File "job.py", line 3, in rate\n    raise Gone()\n'
            "job.Gone: no rate for 0",
            "no rate for 0",
        ),
    ],
    ids=str,
)
def test_the_message_of_the_users_exception_is_told(raised: str, told: str) -> None:
    for tail in ("", "\n", _TAIL, _TAIL + "Caused by: org.apache.spark.SparkException: gone\n\t... 1 more"):
        assert told_in_short(RuntimeError(_HEAD + raised + tail)) == told


def test_without_a_traceback_the_first_line_is_told() -> None:
    assert told_in_short(RuntimeError("[PATH_NOT_FOUND] gone\n\tat org.apache.X.y(X.scala:1)")) == (
        "[PATH_NOT_FOUND] gone"
    )
    assert told_in_short(RuntimeError()) == "RuntimeError"
