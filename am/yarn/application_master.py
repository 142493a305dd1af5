"""The ApplicationMaster's process: `python -m yarrow.am.yarn.application_master`, started by Skein's process.

Owner: the main thread, which runs the event loop. It ends within seconds after Skein's process, whatever
hangs; must not load user code, nor log a secret. Exit status 1 = this attempt has failed, and YARN may start
the next. YarnMasterGateway.finish reports the final end of an application.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from yarrow.am.yarn.application_attempts import ApplicationAttempts
from yarrow.runtime.common.errors import InvalidProgramError, YarrowError
from yarrow.runtime.common.private_files import PrivateFileHandler
from yarrow.runtime.common.process_exit import ProcessExitWatch, ancestors_to, process_name
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.yarn.application import ApplicationDescription, MasterSecrets
from yarrow.runtime.yarn.container_files import ContainerFolder, read_description, read_secrets
from yarrow.runtime.yarn.layout import MASTER_SECRETS_FILE

if TYPE_CHECKING:
    from yarrow.am.yarn.modes.application_end import ApplicationEnd
    from yarrow.runtime.yarn.gateways import YarnMasterGateway

#: Libraries that log each of their requests.
_TALKATIVE = ("hdfs", "uvicorn", "kazoo")
#: The kernel's name of Skein's process.
_JAVA = "java"
#: Seconds in which YARN's web server must tell how former attempts ended; after that the master goes on
#: without.
_COUNTING = 2.0
#: Seconds between attempts to report the end to YARN.
_FINISH_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
_log = logging.getLogger("yarrow.am.yarn.application_master")


class ChildProcesses:
    """Child sessions of this process: they end with it, by force if it must end at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: set[int] = set()

    def add(self, session: int) -> None:
        """Adds the session of a child."""
        with self._lock:
            self._sessions.add(session)

    def remove(self, session: int) -> None:
        """Removes the session of a child that has ended."""
        with self._lock:
            self._sessions.discard(session)

    def kill(self) -> None:
        """Kills all sessions; callable from any thread."""
        with self._lock:
            for session in self._sessions:
                try:
                    os.killpg(session, 9)
                except (ProcessLookupError, PermissionError):
                    continue


def main() -> int:
    """Runs the process; returns its exit status."""
    temporary = Path(tempfile.mkdtemp(prefix="yarrow-master-", dir=os.getcwd()))
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
    children = ChildProcesses()
    watch = ProcessExitWatch(
        ancestors_to(_JAVA, os.getpid()), lambda pid: _end_at_once(pid, children, temporary)
    )
    watch.start()
    try:
        folder = ContainerFolder.of(os.environ)
        _configure_logging(folder.log_directory)
        description = read_description(folder.path)
        secrets = read_secrets(folder.path / MASTER_SECRETS_FILE, MasterSecrets)
        return asyncio.run(_run(description, secrets, folder, temporary, children, watch.stop))
    except Exception as error:
        _log.critical("the ApplicationMaster failed", exc_info=error)
        print(f"the ApplicationMaster failed: {error}", file=sys.stderr)
        return 1
    finally:
        children.kill()
        shutil.rmtree(temporary, ignore_errors=True)


async def _run(
    description: ApplicationDescription,
    secrets: MasterSecrets,
    folder: ContainerFolder,
    temporary: Path,
    children: ChildProcesses,
    stop_watching: Callable[[], None],
) -> int:
    # Imported late: Skein's gRPC client and ours load after the log says that the process has begun.
    from yarrow.am.yarn.running_master import RunningMaster
    from yarrow.runtime.yarn.skein_bridge import SkeinMasterGateway

    attempts = await _count(
        ApplicationAttempts(folder.attempt, description.max_attempts), description, folder
    )
    last = ", the last" if attempts.is_last else ""
    _log.info("the ApplicationMaster starts, %s%s, pid %d", attempts, last, os.getpid())
    gateway = await asyncio.to_thread(SkeinMasterGateway)
    try:
        shown = msgspec.structs.replace(description, max_attempts=attempts.most)
        master = RunningMaster(shown, secrets, folder, temporary, gateway, children)
        end = await master.run()
    except (ConfigError, InvalidProgramError) as error:
        # It would fail in every attempt.
        _log.exception("the ApplicationMaster cannot run the application")
        return await _fail(gateway, stop_watching, str(error))
    except Exception as error:
        _log.exception("%s of the ApplicationMaster has failed", attempts)
        if not attempts.is_last:
            _leave_to_yarn(attempts)
            raise
        text = f"{error if isinstance(error, YarrowError) else repr(error)}"
        return await _fail(
            gateway, stop_watching, f"The ApplicationMaster failed in {attempts}, the last: {text}"
        )
    if end is None:
        _log.info("YARN or Skein asked this attempt to end")
        _leave_to_yarn(attempts)
        return 1
    _log.info("the application ends: %s. %s", end.status.value, end.diagnostics)
    stop_watching()
    told = await tell_end(gateway, end)
    if not attempts.ends_by(end.status):
        _log.info(
            "Skein reports the end to YARN only from attempt %d on: earlier attempts run nothing and "
            "report the same end",
            attempts.limit,
        )
    # Not before YARN knows the end: another attempt would run finished jobs again.
    await master.forget(told=told and attempts.ends_by(end.status))
    return 0


async def _count(
    attempts: ApplicationAttempts, description: ApplicationDescription, folder: ContainerFolder
) -> ApplicationAttempts:
    """Counts the former attempts that YARN does not count, if YARN answers in time."""
    if attempts.number == 1:
        return attempts
    from yarrow.runtime.config.settings import Settings
    from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
    from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWeb

    def count() -> ApplicationAttempts:
        hadoop = HadoopConfiguration.load(Settings(description.configuration), os.environ)
        web = ResourceManagerWeb.of(hadoop)
        return attempts.count(lambda number: web.diagnostics_of_attempt(folder.application_id, number))

    try:
        async with asyncio.timeout(_COUNTING):
            return await asyncio.to_thread(count)
    except (YarrowError, TimeoutError) as error:
        _log.info("it is unknown whether YARN counts all attempts before this one: %s", error or "no answer")
        return attempts


def _leave_to_yarn(attempts: ApplicationAttempts) -> None:
    """Keeps Skein from reporting this attempt's failure as the end of the application: YARN starts another attempt."""
    if not attempts.failure_is_yarns:
        return
    java = ancestors_to(_JAVA, os.getpid())[-1:]
    if java and process_name(java[0]) == _JAVA:
        _log.info(
            ("the ApplicationMaster kills Skein's process %d, so that YARN decides about the next attempt"),
            java[0],
        )
        os.kill(java[0], signal.SIGKILL)


async def _fail(gateway: YarnMasterGateway, stop_watching: Callable[[], None], diagnostics: str) -> int:
    from yarrow.am.yarn.modes.application_end import ApplicationEnd
    from yarrow.runtime.yarn.gateways import FinalStatus

    stop_watching()
    end = ApplicationEnd(FinalStatus.FAILED, diagnostics)
    await tell_end(gateway, end)
    return 1


async def tell_end(
    gateway: YarnMasterGateway, end: ApplicationEnd, pauses: Sequence[float] = _FINISH_PAUSES
) -> bool:
    """Reports the end to YARN, retried after each pause in seconds; False = it is unknown whether YARN heard it.

    Raises YarnError if YARN certainly did not hear it: this attempt then fails, and the next one reports.
    """
    from yarrow.runtime.yarn.gateways import EndUnknownError, YarnError

    unknown = False
    for pause in (*pauses, None):
        try:
            await asyncio.to_thread(gateway.finish, end.status, end.diagnostics)
            return True
        except EndUnknownError as error:
            _log.info("%s", error)
            if unknown or pause is None:
                return False
            unknown = True
        except YarnError as error:
            if pause is None:
                raise
            _log.warning(
                "YARN did not hear of the end of the application, the ApplicationMaster tries "
                "again in %g s: %s",
                pause,
                error,
            )
        await asyncio.sleep(pause)
    return False


def _end_at_once(pid: int, children: ChildProcesses, temporary: Path) -> None:
    """Ends this process, because Skein's process is gone: YARN starts the next attempt, and this one must not go on."""
    _log.critical(
        "Skein's process %d, the parent of this ApplicationMaster, has ended: the "
        "ApplicationMaster ends as well",
        pid,
    )
    children.kill()
    shutil.rmtree(temporary, ignore_errors=True)
    os._exit(1)


def _configure_logging(directory: Path) -> None:
    logging.basicConfig(
        handlers=[PrivateFileHandler(directory / "jobmanager.log", encoding="utf-8")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)-5s %(name)s - %(message)s",
    )
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
