"""Java of a SparkDriver: a process that the kernel kills when its driver ends.

Owner: the driver starts it from its main thread, because the kernel watches the thread that started it.
`python -P -m yarrow.container.batch.spark.java.java_process PARENT JAVA ARGUMENT...` becomes Java.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import psutil

from yarrow.container.launch.worker_process import die_with_parent
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.private_files import private_opener

#: Seconds that Java has to end by itself, then that its Python processes have.
_GRACE = 3.0
#: The status with which -XX:+ExitOnOutOfMemoryError ends Java, and what Java prints before.
_OUT_OF_MEMORY = 3
_LAST_WORDS = re.compile(rb"^Terminating due to java\.lang\.OutOfMemoryError: (.*)$", re.MULTILINE)
#: The memory of which spark.driver.memory gives more.
_OF_HEAP = ("Java heap space", "GC overhead limit exceeded")
#: Bytes at the end of Java's output in which these words are looked for: Python processes print there, too.
_TAIL = 1 << 16


class SparkLostError(YarrowError):
    """The JVM that runs Spark has ended."""


class JavaProcess:
    """A running Java, and the Python processes below it."""

    def __init__(
        self, executable: Path, arguments: Sequence[str], environment: Mapping[str, str], output: Path
    ) -> None:
        """Starts it; what it prints goes to `output`. Call it from the main thread.

        Its standard input is a pipe: Spark ends at its end.
        """
        command = [sys.executable, "-P", "-m", __name__, str(os.getpid()), str(executable), *arguments]
        with open(output, "ab", opener=private_opener) as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                env=dict(environment),
                start_new_session=True,
            )
        #: Why it was ended, if it stood still; "" = it was not.
        self._given_up = ""
        self._output = output

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait(self) -> int:
        """Waits for its end; returns its status, negative for a signal."""
        return self._process.wait()

    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends within that time: its connections break before the kernel tells of its end."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def give_up(self, why: str) -> None:
        """Ends it at once, because it is of no use any more; `lost` tells why."""
        self._given_up = why
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def lost(self) -> SparkLostError:
        """The error about its end."""
        if self._given_up:
            return SparkLostError(self._given_up)
        status = self._process.returncode
        missing = _missing_memory(self._output) if status == _OUT_OF_MEMORY else ""
        if missing:
            advice = ": set spark.driver.memory to more, or let functions collect and broadcast fewer rows"
            is_of_heap = missing in _OF_HEAP
            return SparkLostError(
                f"Java, which runs Spark, has no memory left ({missing}){advice if is_of_heap else ''}"
            )
        how = f"by signal {-status}" if status < 0 else f"with the status {status}"
        return SparkLostError(f"Java, which runs Spark, has ended {how}: see the log of the SparkDriver")

    def cpu_seconds(self) -> float:
        """Seconds of the processor that it has used so far; 0 = it has ended."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _tree(self) -> list[psutil.Process]:
        try:
            java = psutil.Process(self._process.pid)
            return [java, *java.children(recursive=True)]
        except psutil.Error:
            return []

    def end(self, grace: float = _GRACE, await_end: Callable[[], bool] | None = None) -> bool:
        """Ends it with all its Python processes, by force if need be; may be repeated.

        `grace`: seconds that Java has to end by itself. False = it did not. `await_end` waits in place of these
        seconds, and returns whether Java has ended.
        """
        below = self._tree()[1:]
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        ends_by_itself = self.ends_within(grace) if await_end is None else await_end()
        if not ends_by_itself:
            self._process.kill()
            self._process.wait()
        left = psutil.wait_procs(below, _GRACE)[1]
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, _GRACE)
        return ends_by_itself and self._process.returncode != -signal.SIGKILL


def _missing_memory(output: Path) -> str:
    """Which memory Java says that it lacks, as `Java heap space`; "" = it does not say so."""
    with contextlib.suppress(OSError), output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _TAIL))
        found = _LAST_WORDS.findall(file.read())
        return found[-1].decode(errors="replace").strip() if found else ""
    return ""


def main(arguments: list[str]) -> NoReturn:
    """Becomes Java."""
    parent, executable, *rest = arguments
    die_with_parent(int(parent))
    os.execv(executable, [executable, *rest])


if __name__ == "__main__":
    main(sys.argv[1:])
