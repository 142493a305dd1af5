"""OwnInterpreter: a job's own interpreter on one TaskExecutor: its archive is fetched, unpacked and tried once.

Owner: the TaskExecutor's event loop; slow work runs in a thread. Workers of the job find the unpacked archive
in their working directory. Of the user's files only the interpreter runs here, which reports its version.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from yarrow.container.protocol.errors import UnfitInterpreterError, WorkerStartError
from yarrow.container.supervisor.job_files import JobFiles
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.config.options import python
from yarrow.runtime.graph.job_graph import ShippedFile
from yarrow.runtime.interpreters.interpreter import refused_interpreter, unfit
from yarrow.runtime.rpc.messages import JobInterpreter

_log = logging.getLogger(__name__)


class OwnInterpreter:
    """The interpreter of one job; it is removed with the job's files."""

    def __init__(self, wanted: JobInterpreter, files: JobFiles, environment: Mapping[str, str]) -> None:
        """`environment`: that of the workers."""
        self._wanted = wanted
        self._files = files
        self._environment = environment
        self._path: asyncio.Task[str] | None = None

    async def path(self) -> str:
        """The absolute path of the interpreter, once workers can run in it.

        Raises UnfitInterpreterError if workers can never run in it. Raises WorkerStartError for anything
        else: the next call tries again.
        """
        failed = self._path is not None and self._path.done() and self._path.exception() is not None
        if self._path is None or failed:
            self._path = asyncio.create_task(self._prepare(), name=f"interpreter {self._wanted.executable}")
        return await asyncio.shield(self._path)

    async def _prepare(self) -> str:
        wanted = self._wanted
        try:
            paths = await self._files.fetch([wanted.blob_key])
            path = await asyncio.to_thread(self._unpack_and_try, Path(paths[wanted.blob_key]))
        except asyncio.CancelledError:
            raise WorkerStartError(
                f"the archive {wanted.archive!r} is not fetched: the job has ended"
            ) from None
        except InvalidProgramError as error:
            raise self._unfit(str(error)) from error
        except (YarrowError, OSError) as error:
            if isinstance(error, UnfitInterpreterError):
                raise
            raise WorkerStartError(
                f"the interpreter {wanted.executable} of the archive {wanted.archive!r} could not be prepared:"
                f" {error}"
            ) from error
        if self._files.is_closed:
            # They were removed while the archive was unpacked.
            await self._files.close()
            raise WorkerStartError("no worker is started: the job has ended")
        _log.info("the workers of a job run in the interpreter %s", path)
        return path

    def _unpack_and_try(self, source: Path) -> str:
        wanted = self._wanted
        archive = ShippedFile(
            name=wanted.archive, kind="archive", blob_key=wanted.blob_key, target=wanted.folder
        )
        # Imported only for a job with its own interpreter: unpacking code takes megabytes.
        from yarrow.container.worker.shipped_content import unpack_archive

        folder = unpack_archive(archive, source)
        # The path as named: resolved through links, an environment would not recognise itself.
        path = os.path.join(folder, wanted.executable)
        if reason := unfit(path, self._environment):
            raise self._unfit(reason)
        return path

    def _unfit(self, reason: str) -> UnfitInterpreterError:
        wanted = self._wanted
        told = f"tried in the job's archive {wanted.archive!r}: {reason}"
        example = f"{wanted.folder}/bin/python"
        error = refused_interpreter(python.EXECUTABLE.key, wanted.executable, told, example=example)
        return UnfitInterpreterError(str(error))
