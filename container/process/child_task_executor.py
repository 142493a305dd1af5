"""ChildTaskExecutor: the TaskExecutor of a parent on this host, from its bootstrap to its end.

It reads its bootstrap from standard input, and runs until it is released, killed or orphaned.

Owner: its main thread, which runs the event loop; one more thread waits for the end of standard input. Must
not import pyarrow, numpy, pandas or user code, nor put a secret into its arguments, environment or logs.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from yarrow.container.launch.process_start import StartedTemplate
from yarrow.container.process.task_executor_process import (
    EarlyTemplate,
    configure_logging,
    output_files,
    run_task_executor,
)
from yarrow.container.supervisor.task_executor import TaskExecutor
from yarrow.runtime.fs.client_folder import remove_orphaned
from yarrow.runtime.rpc.bootstrap import BootstrapError, read_bootstrap

#: Seconds between the parent's end and the forced end of this process.
ORPHAN_LIMIT = 1.8
#: Seconds that workers have within that time.
ORPHAN_GRACE = 0.5
_log = logging.getLogger(__name__)


class ParentWatch:
    """A thread that reads standard input: its end means that the parent is gone, or wants this process to end."""

    def __init__(self, working_directory: Path) -> None:
        self._working_directory = working_directory
        self._stopped = threading.Event()
        self._executor: TaskExecutor | None = None
        #: Guards the creation of the TaskExecutor.
        self._lock = threading.Lock()
        #: True once the parent is gone: nobody else will then remove our folder.
        self.orphaned = False

    def start(self) -> None:
        """Begins to watch."""
        threading.Thread(target=self._watch, name="parent watch", daemon=True).start()

    def follow(self, executor: TaskExecutor) -> None:
        """See LifeWatch."""
        with self._lock:
            self._executor = executor

    def stop(self) -> None:
        """Stops watching: the process ends by itself."""
        self._stopped.set()

    def _watch(self) -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass  # Treated like the end of the input.
        with self._lock:
            executor = self._executor
            self.orphaned = True
            if executor is None:
                if not self._stopped.is_set():
                    _log.info(
                        "the process that started this TaskExecutor ended before the TaskExecutor was ready"
                    )
                    self._end_by_force()
                return
        cause = "the process that started the TaskExecutor has ended"
        try:
            executor.loop.call_soon_threadsafe(lambda: executor.finish(cause, grace=ORPHAN_GRACE))
        except RuntimeError:
            return  # The loop has closed: the process is ending.
        if not self._stopped.wait(ORPHAN_LIMIT):
            self._end_by_force()

    def _end_by_force(self) -> NoReturn:
        remove_orphaned(self._working_directory)
        # The template sees the end of its socket, and the kernel ends processes that do not look.
        os._exit(1)


def run_child(worker_entry: str, template: StartedTemplate | None) -> int:
    """Runs the process with the template that it has forked; returns its exit status.

    That is 0 when the TaskExecutor was released, 1 when it failed.
    """
    try:
        asyncio.run(_main(EarlyTemplate(worker_entry, started=template)))
    except BootstrapError as error:
        print(error, file=sys.stderr)
        return 1
    except Exception as error:
        _log.critical("the TaskExecutor failed", exc_info=error)
        print(f"the TaskExecutor failed: {error}", file=sys.stderr)
        return 1
    return 0


async def _main(early: EarlyTemplate) -> None:
    await early.start()
    # The import takes a moment, which is free while the bootstrap is on its way.
    importlib.import_module("grpc.aio")
    try:
        bootstrap = await asyncio.to_thread(read_bootstrap, sys.stdin.buffer)
        configure_logging(output_files(bootstrap).log_path)
        _log.info("the TaskExecutor %s starts, pid %d", bootstrap.resource_id, os.getpid())
        watch = ParentWatch(Path(bootstrap.working_directory))
        watch.start()
        try:
            await run_task_executor(bootstrap, early, watch)
        finally:
            watch.stop()
            if watch.orphaned:
                remove_orphaned(Path(bootstrap.working_directory))
        _log.info("the TaskExecutor %s has ended", bootstrap.resource_id)
    finally:
        await early.close()
