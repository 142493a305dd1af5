"""Full disks of a stage: tells whether Spark, an output or the function has filled one, the folder, and what to do.

Owner: the thread of a stage. It reads errors and the sizes of disks, and nothing else. Must not know how an error is
shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yarrow.container.batch.full_disks import full_disk, means_full, tells_of_full_disk
from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.config.options import batch
from yarrow.runtime.fs.local import plain_path

#: Java's frames of a cause stand below it.
_BEFORE_CAUSES: Final = re.compile(r"^(?=\s*(?:Caused by|Suppressed): )", re.MULTILINE)
#: The package by which Spark writes an output. Spark writes its own files without that package.
_OF_OUTPUTS: Final = "org.apache.hadoop.fs."
_OF_PYTHON: Final = "[Errno "
_HDFS_FULL: Final = (
    "could only be written to 0 of the",
    "DSQuotaExceededException",
    "NSQuotaExceededException",
    "quota of",
)
#: A disk with fewer free bytes is full.
_LITTLE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StageOutput:
    """An output in the words of an error."""

    name: str
    path: str
    #: The hidden folder that the attempt fills.
    folder: str
    #: Whether the engine has chosen the path.
    is_temporary: bool

    @property
    def other_place(self) -> str:
        """How the output gets onto another disk."""
        if self.is_temporary:
            return f"name a folder on a larger one ({batch.PIPELINE_DIRECTORY.key})"
        return "name another path for the output"

    @property
    def parent(self) -> str:
        """The folder, on a local disk, in which the output is."""
        return os.path.dirname(plain_path(self.path).rstrip("/"))


@dataclass(frozen=True, slots=True)
class StageDisks:
    """The disks to which one attempt of a stage writes."""

    outputs: Sequence[StageOutput]
    #: The full disk of Spark's own files by the text of its error, and the remedy.
    disk_of_spark: Callable[[str], str]

    def full_under(self, output: StageOutput, error: BaseException) -> str:
        """Names the full disk that kept an output from being written; "" = the error has another reason."""
        text = str(error)
        fills_output = means_full(error) or _fills_output(text)
        if fills_output and scheme_of(output.path) == "file":
            return full_disk(output.parent, output.other_place)
        if fills_output or any(words in text for words in _HDFS_FULL):
            return f"the storage is full, or a quota is used up: make room, or {output.other_place}"
        return self._full_of_spark(text)

    def full_in_function(self, error: BaseException) -> str:
        """Names the full disk at which the stage's function has raised an error; "" = the error has another reason."""
        if not means_full(error) and not _fills_output(str(error)):
            return self._full_of_spark(str(error))
        file = getattr(error, "filename", None)
        for output in self.outputs:
            if scheme_of(output.path) == "file" and _is_below(output, file):
                return f"output {output.name!r}: {full_disk(output.parent, output.other_place)}"
        return "a disk to which the function writes is full: free the disk, or let the function write to another one"

    def _full_of_spark(self, text: str) -> str:
        if not _java_tells(text):
            return ""
        return f"Spark cannot write its own files: {self.disk_of_spark(text)}"


def _fills_output(text: str) -> bool:
    """Whether an error of Java is that of a file of an output."""
    return any(_java_tells(part) and _OF_OUTPUTS in part for part in _BEFORE_CAUSES.split(text))


def _java_tells(text: str) -> bool:
    """Whether Java speaks of a full disk, and not a Python function that Spark has called."""
    return any(tells_of_full_disk(line) and _OF_PYTHON not in line for line in text.splitlines())


def _is_below(output: StageOutput, file: object) -> bool:
    """Whether a file is that of an output. Most errors name no file: then the disk tells."""
    if isinstance(file, str):
        return Path(os.path.abspath(file)).is_relative_to(plain_path(output.folder))
    return os.path.isdir(output.parent) and shutil.disk_usage(output.parent).free < _LITTLE
