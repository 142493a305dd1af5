"""SparkDriverProcess: the process of a SparkDriver, as the process that starts it sees it.

Owner: the loop on which it was started. The driver gets its settings through a pipe, as a TaskExecutor does. Its end
takes Java and Python workers with it, then its folder. Must not put a secret into argv or the environment.

A driver that ends may have work left: the first one of a user has Java write its classes. It gives signs of that work,
which both of its limits know: that of its parent here, and its own (container/batch/spark/driver_main.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from yarrow.runtime.interpreters.environment import environment_for
from yarrow.runtime.rpc.bootstrap import SparkDriverBootstrap, encode_bootstrap

if TYPE_CHECKING:
    from yarrow.runtime.common.child_process import ChildProcess

#: Arguments of the interpreter. With -P a file of the working directory never precedes a module of the same name.
_COMMAND: Final = ("-P", "-m", "yarrow.container.batch.spark.driver_main")
#: Seconds in which Spark may end in order before all of the session is killed. They count from the driver's last sign
#: of work.
GRACE: Final = 30.0
#: Seconds that Java may take to write its classes, after which it is killed: on two cores 37 under a load of 12, 140
#: under 17.
WRITING_SECONDS: Final = 180.0
#: Seconds after which all of the session is killed, whatever signs came: user code could write them too.
LONGEST_END: Final = WRITING_SECONDS + GRACE
#: Below the driver's folder: a byte for each sign of work.
_SIGNS_FILE: Final = "signs-of-work"


class SignsOfWork:
    """The signs of work that an ending driver gives, as one who gives or sees them has them.

    Sizes of a file are compared, and no times: neither side needs the other's clock.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is the driver's own."""
        self._file = folder / _SIGNS_FILE
        self._seen = 0

    def give(self) -> None:
        """Gives one; where the disk is full, nobody hears of it, and the driver has its usual time."""
        with contextlib.suppress(OSError), self._file.open("ab") as signs:
            signs.write(b".")

    def came(self) -> bool:
        """Whether one came since this was asked last."""
        try:
            given = self._file.stat().st_size
        except OSError:
            return False
        before, self._seen = self._seen, given
        return given > before


class SparkDriverProcess:
    """One driver, from its start until nothing of it is left."""

    def __init__(self, process: ChildProcess, folder: str) -> None:
        self._process = process
        self._folder = folder
        self._end = asyncio.get_running_loop().create_task(self._watch())

    @classmethod
    async def start(
        cls,
        bootstrap: Callable[[str], SparkDriverBootstrap],
        folder_prefix: str,
        folder_parent: str,
        error_file: Path,
        interpreter: str = sys.executable,
    ) -> SparkDriverProcess:
        """Starts a driver that has its bootstrap already.

        `bootstrap` gets the driver's own new folder. User code runs in the `interpreter`. Raises OSError.
        """
        # Most TaskExecutors start no driver.
        from yarrow.runtime.common.child_process import ChildProcess

        folder = await asyncio.to_thread(tempfile.mkdtemp, prefix=folder_prefix, dir=folder_parent)
        try:
            child = await ChildProcess.start(
                (interpreter, *_COMMAND), error_file, environment=environment_for(interpreter, os.environ)
            )
        except BaseException:
            await asyncio.to_thread(os.rmdir, folder)
            raise
        driver = cls(child, folder)
        try:
            await child.give(encode_bootstrap(bootstrap(folder)))
        except BaseException:
            # Nobody else knows it yet.
            await driver.end()
            raise
        return driver

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def workers(self) -> list[tuple[str, int]]:
        """Returns none: Java and Spark's Python processes have memory besides that of a TaskExecutor."""
        return []

    async def wait(self) -> str:
        """Returns when nothing of it is left, with a description of its end."""
        return await asyncio.shield(self._end)

    async def end(self, grace: float | None = None) -> None:
        """Ends it, by force after `grace` seconds; returns when nothing of it is left.

        None = GRACE seconds after its last sign of work, and LONGEST_END at most. Another call may give an end that
        has begun less time.
        """
        if grace is None:
            await self._process.end(GRACE, SignsOfWork(Path(self._folder)).came, LONGEST_END)
        else:
            await self._process.end(grace)
        await asyncio.shield(self._end)

    async def _watch(self) -> str:
        cause = await self._process.wait()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        return cause
