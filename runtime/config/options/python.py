"""Options of the user's Python environment.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import STRING, enum_of, list_of
from yarrow.runtime.config.values.option import option, optional


class EventLoopKind(enum.Enum):
    """The library whose event loop runs the asynchronous functions of a job."""

    #: asyncio where uvloop cannot be imported.
    UVLOOP = "uvloop"
    ASYNCIO = "asyncio"


FILES: Final = optional(
    "python.files",
    list_of(STRING, ",;", "module.py,package.zip"),
    "Modules, packages and archives shipped with the job and put on the path of its workers.",
    unset="the program alone",
)
ARCHIVES: Final = optional(
    "python.archives",
    list_of(STRING, ",;", "env.zip#env,data.tar.gz"),
    "Archives unpacked in the working directory of each worker; `#name` gives the directory's name.",
    unset="none",
)
REQUIREMENTS: Final = optional(
    "python.requirements",
    STRING,
    "A requirements file, with `#directory` a directory of packages to install from.",
    unset="none",
)
EXECUTABLE: Final = option(
    "python.executable",
    STRING,
    "python",
    "The interpreter that runs the workers; by default the interpreter of their TaskExecutor (embedded: "
    "the program's). It must be of the program's minor version, with the same Yarrow installed. A path in "
    "an archive of `python.archives` (`env.zip/bin/python`) is for the job alone that brings it.",
)
CLIENT_EXECUTABLE: Final = option(
    "python.client.executable",
    STRING,
    "python",
    "The interpreter that runs main() of a program that `yarrow run` submits; in application mode, of the container."
    " As for `python.executable`, it may lie in an archive of `python.archives`.",
)
PYTHON_PATH: Final = optional(
    "python.pythonpath",
    STRING,
    "Entries put on the path of the workers.",
    unset="none",
)
EVENT_LOOP: Final = option(
    "python.event-loop",
    enum_of(EventLoopKind),
    "uvloop",
    "The library whose event loop runs asynchronous functions. `uvloop` takes less CPU time a call. `asyncio` is for "
    "libraries that do not work with uvloop, such as nest_asyncio. Workers that cannot import uvloop use asyncio.",
)
