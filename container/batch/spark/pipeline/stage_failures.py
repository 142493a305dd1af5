"""What a failed stage tells: the user's own traceback first, and nothing of Spark, Java and py4j before it.

Owner: the thread of a stage. An error of a function that Spark calls in its tasks comes as text within Spark's own
error: its frames are cut out of that. Must not raise.
"""

from __future__ import annotations

import os
import re
import traceback
from typing import Final

import msgspec
import py4j
import pyspark
from pyspark.errors import PySparkException

from yarrow.container.batch.spark.pipeline.stage_disks import StageDisks, StageOutput
from yarrow.container.protocol.failure import OperatorFailure, failure_cause, is_engine_file
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle
from yarrow.runtime.rpc.messages import FailureCause

_TRACEBACK: Final = "Traceback (most recent call last):\n"
#: What Spark puts before the words of the task that failed.
_OF_TASK: Final = re.compile(r"^Job aborted due to stage failure: .*?: (?=(?:[a-z][\w$]*\.)+[A-Z])")
_PROCESS_DIED: Final = re.compile(r"^Python worker exited unexpectedly.*")
_PROCESS_HAS_DIED: Final = (
    "a Python process of Spark has died while it ran a function of the stage. It called os._exit, its native code"
    " crashed, or it was killed, as where memory runs out"
)
#: Spark's own reader of Arrow finds another type than it was told.
_OF_ARROW: Final = re.compile(r".*\bArrowColumnVector\$ArrowVectorAccessor\b.*")
_OTHER_TYPE: Final = (
    "a function of mapInArrow or applyInArrow gave a column of another type than its schema. Cast the column, or name"
    " its type"
)
#: Where Java begins to speak behind a text that is for people.
_OF_JAVA: Final = re.compile(
    r"\n\s*(at [\w.$/]+\(|Driver stacktrace|JVM stacktrace|Caused by:|\.\.\. \d+ more|=+ SQL|\(TID \d+|SQLSTATE: \w+)"
)
_FRAME: Final = re.compile(r'  File "([^"]+)", line \d+')
_PACKAGES: Final = tuple(os.path.realpath(os.path.dirname(each.__file__)) for each in (pyspark, py4j))
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:: |$)")
_OF_PY4J: Final = re.compile(r"^An error occurred while calling [\w.]+\.?$")
#: What Spark's own code in a Python process says of what a function gave: none of the frames is the function's.
_OF_WORKER: Final = re.compile(r"^pyspark\.errors\.exceptions\.base\.\w+: ")
#: What Spark says of a file where only the cause of the error knows more.
_UNREAD: Final = "[FAILED_READ_FILE.NO_HINT]"
_CAUSE: Final = re.compile(r"^Caused by: (?!.*FAILED_READ_FILE)(.*: .*)$", re.MULTILINE)
_SAFE_MODE: Final = ("SafeModeException", "Name node is in safe mode")
_MOST: Final = 2000


class StageOutputError(YarrowError):
    """An output of a stage was not written; the message names stage, output and path."""


def is_of_spark(error: BaseException) -> bool:
    """Whether Spark or its Java has raised an error."""
    return isinstance(error, PySparkException) or type(error).__module__.startswith("py4j.")


def cause_of(stage: str, error: BaseException) -> FailureCause:
    """The failure of a stage as users read it."""
    if isinstance(error, YarrowError):
        # Its message says all.
        cause = failure_cause(error.with_traceback(None), f"stage '{stage}'")
    elif is_of_spark(error):
        cause = _of_spark(stage, error)
    else:
        cause = failure_cause(OperatorFailure(stage, "", error))
        cause = msgspec.structs.replace(
            cause, stacktrace=cause.stacktrace.replace(f"operator '{stage}'", f"stage '{stage}'")
        )
    return msgspec.structs.replace(cause, operator_name=stage)


def _of_spark(stage: str, error: BaseException) -> FailureCause:
    frames, kind, message = _inner(str(error)) or (
        _own_frames(error),
        type(error).__name__,
        told_by_spark(error),
    )
    trace = f"{_TRACEBACK}{frames}" if frames else ""
    message = "\n".join([cut_in_the_middle(message, _MOST), *getattr(error, "__notes__", ())])
    return FailureCause(
        exception_name=kind,
        message=message,
        stacktrace=f"{trace}{kind}: {message}\n  in stage '{stage}'\n",
    )


def _own_frames(error: BaseException) -> str:
    """The frames of the program, as a traceback shows them."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return "".join(traceback.format_list(frames))


def _is_users(file: str) -> bool:
    return (
        not is_engine_file(file)
        and not os.path.realpath(file).startswith(_PACKAGES)
        and "<frozen" not in file
    )


def _inner(text: str) -> tuple[str, str, str] | None:
    """Frames, class and message of an error in a function that Spark has called; None if there was none."""
    _, found, trace = text.rpartition(_TRACEBACK)
    if not found:
        return None
    kept: list[str] = []
    is_users = False
    lines = _before_java(f"\n{trace}")[1:].splitlines()
    while lines and (lines[0].startswith("  ") or not lines[0].strip()):
        line = lines.pop(0)
        frame = _FRAME.match(line)
        if frame is not None:
            is_users = _is_users(frame[1])
        if is_users:
            kept.append(f"{line}\n")
    raised = "\n".join(lines).strip()
    if not raised or (not kept and "." in raised.partition(":")[0] and not _OF_WORKER.match(raised)):
        return None
    kind, _, message = raised.partition(": ")
    return "".join(kept), kind.rpartition(".")[2] if not kept else kind, message


def _before_java(text: str) -> str:
    found = _OF_JAVA.search(text)
    return text if found is None else text[: found.start()]


def told_by_spark(error: BaseException) -> str:
    """What Spark says, without classes and traces of Java; for a file that cannot be read, why it cannot."""
    text = str(error)
    lines = [line.strip() for line in _before_java(text).splitlines()]
    told = [_JAVA_CLASS.sub("", line.lstrip(": ")) for line in lines if line and not _OF_PY4J.match(line)]
    if any(_UNREAD in line for line in told):
        told += _CAUSE.findall(text)[:1]
    return "\n".join(_for_people(line) for line in told if line) or type(error).__name__


def _for_people(line: str) -> str:
    """A line of Spark without the number of its task and Java's classes."""
    line = _JAVA_CLASS.sub("", _OF_TASK.sub("", line))
    line = _PROCESS_DIED.sub(_PROCESS_HAS_DIED, line)
    return _OF_ARROW.sub(_OTHER_TYPE, line)


def not_written(stage: str, output: StageOutput, error: BaseException, disks: StageDisks) -> BaseException:
    """The error to tell where an output could not be written: the user's own, or a StageOutputError."""
    what = f"Stage {stage!r}: its output {output.name!r} was not written to {output.path}"
    if full := disks.full_under(output, error):
        return StageOutputError(f"{what}: {full}")
    text = str(error)
    if any(words in text for words in _SAFE_MODE):
        return StageOutputError(f"{what}: HDFS is in safe mode, and takes nothing: wait until it has left it")
    if _inner(text) is not None:
        return error
    return StageOutputError(f"{what}: {cut_in_the_middle(told_by_spark(error), _MOST)}")
