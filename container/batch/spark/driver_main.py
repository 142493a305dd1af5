"""The process of a SparkDriver: Java below it, Spark's Python processes below Java.

It reads its bootstrap from standard input, and runs until it is released, killed or orphaned.

Owner: its main thread, which starts Java and runs the event loop. One thread waits for the end of standard
input, and one for the end of Java. However it ends, nothing of it is left: the kernel ends Java with this
process, and Spark's Python processes see the end of their pipes. Must not put a secret into arguments,
environment or logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from yarrow.container.batch.driver.batch_driver import BatchDriver, DriverEnd, patiently
from yarrow.container.batch.spark.java.java_heartbeat import JavaHeartbeat
from yarrow.container.batch.spark.refused_settings import SparkSettingError
from yarrow.container.batch.spark.requirements import SparkRequirementError, check_requirements
from yarrow.container.batch.spark.settings import SparkFolders
from yarrow.container.batch.spark.yarn_start import addresses_for, spark_on_yarn, tell_what_is_awaited
from yarrow.container.launch.process_start import set_process_name
from yarrow.container.protocol.errors import RegistrationRefusedError
from yarrow.container.protocol.failure import failure_cause
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.private_files import PrivateFileHandler, private_opener
from yarrow.runtime.config.options import batch, rpc
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.fs.client_folder import remove_orphaned
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway
from yarrow.runtime.rpc.bootstrap import BootstrapError, SparkDriverBootstrap, read_spark_driver_bootstrap
from yarrow.runtime.rpc.gateway_type import BATCH_JOB_MASTER, SPARK_DRIVER
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings
from yarrow.runtime.rpc.messages import BatchSubmission, FailureCause, SparkApplication
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.rpc.spark_driver_process import GRACE, LONGEST_END, SignsOfWork
from yarrow.runtime.security.result_proof import result_key
from yarrow.runtime.yarn.gateways import YarnError

if TYPE_CHECKING:
    from yarrow.container.batch.driver.driver_run import DriverRun
    from yarrow.container.batch.spark.batch_run import RunServices
    from yarrow.container.batch.spark.session import SparkHost

#: Seconds between the parent's end and the forced end of this process.
_ORPHAN_LIMIT: Final = 9.0
#: The same if the parent lives and wants the end, since the last sign of work: it kills all of the session later.
_ENDING_LIMIT: Final = GRACE - 1.0
#: The same since the end was asked for, whatever signs came.
_LONGEST_LIMIT: Final = LONGEST_END - 1.0
#: Seconds between two looks whether the parent has ended since.
_LOOK: Final = 0.2
_log = logging.getLogger(__name__)


def main() -> int:
    """Runs the process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-sparkdrv")
    try:
        bootstrap = read_spark_driver_bootstrap(sys.stdin.buffer)
    except BootstrapError as error:
        print(error, file=sys.stderr)
        return 1
    folder, parent = Path(bootstrap.working_directory), os.getppid()
    status = run_process(bootstrap, partial(_watch_parent, folder, parent))
    if os.getppid() != parent:
        remove_orphaned(folder)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        # A function of a stage does not return, and the interpreter would wait for its thread.
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
    return status


def run_process(
    bootstrap: SparkDriverBootstrap,
    watch_owner: Callable[[BatchDriver], None],
    reads_configuration: bool = False,
) -> int:
    """Runs the driver; the exit status of its process.

    `watch_owner` begins to watch whoever has started the driver. `reads_configuration`: the bootstrap has that of
    the cluster alone, and the BatchJobMaster tells the job's own.
    """
    log_file = _configure_logging(bootstrap)
    try:
        end = asyncio.run(_DriverProcess(bootstrap, log_file, watch_owner, reads_configuration).run())
    except Exception as error:
        _log.critical("the SparkDriver failed", exc_info=error)
        print(f"the SparkDriver failed: {error}", file=sys.stderr)
        return 1
    _log.info("the SparkDriver ends: %s", end.cause)
    return 0 if end.orderly else 1


def _configure_logging(bootstrap: SparkDriverBootstrap) -> Path:
    """Sends log records to the driver's log file, whose path is returned."""
    path = Path(bootstrap.log_directory) / f"{bootstrap.log_name or bootstrap.driver_id}.log"
    logging.basicConfig(
        handlers=[PrivateFileHandler(path, encoding="utf-8")],
        level=logging.INFO,
        format="%(asctime)s %(levelname)-5s %(name)s - %(message)s",
    )
    # What PySpark prints is no word to the user.
    with open(path.with_suffix(".out"), "ab", opener=private_opener) as output:
        for descriptor in (1, 2):
            os.dup2(output.fileno(), descriptor)
    # Each call to Java would be a record.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    return path


class _DriverProcess:
    """The work of the process after its bootstrap."""

    def __init__(
        self,
        bootstrap: SparkDriverBootstrap,
        log_file: Path,
        watch_owner: Callable[[BatchDriver], None],
        reads_configuration: bool,
    ) -> None:
        self._bootstrap = bootstrap
        self._log_file = log_file
        self._watch_owner = watch_owner
        self._reads_configuration = reads_configuration
        self._config = Settings(bootstrap.configuration, "the bootstrap of the SparkDriver")
        self._folders = SparkFolders(
            Path(bootstrap.working_directory), Path(bootstrap.spark_jars) if bootstrap.spark_jars else None
        )
        self._clock = SystemClock()

    async def run(self) -> DriverEnd:
        """Runs until the driver has finished."""
        use_hdfs_settings(HdfsSettings.of(self._config))
        bootstrap = self._bootstrap
        async with _rpc(bootstrap, self._config) as service:
            master = service.connect(bootstrap.job_master_address, BATCH_JOB_MASTER, bootstrap.job_master_id)
            timeout = self._config.get(rpc.HEARTBEAT_TIMEOUT).seconds
            if self._reads_configuration:
                await self._read_configuration(master, timeout)
            driver = BatchDriver(bootstrap, master, self._clock, timeout)
            await driver.start()
            self._watch_owner(driver)
            address = service.serve(SPARK_DRIVER, driver)
            try:
                return await self._serve(driver, address)
            finally:
                await driver.stop()
                remove_files(self._folders.working)

    async def _read_configuration(self, master: BatchJobMasterGateway, seconds: float) -> None:
        """Lays the job's own configuration over that of the cluster."""
        own = self._bootstrap
        answer = await patiently(
            partial(master.read_spark_configuration, own.driver_id), self._clock, seconds
        )
        configuration = {**own.configuration, **answer.configuration}
        self._bootstrap = msgspec.structs.replace(own, configuration=configuration)
        self._config = Settings(configuration, "the SparkDriver's container and the job")

    async def _serve(self, driver: BatchDriver, address: str) -> DriverEnd:
        try:
            java = check_requirements(self._bootstrap.configuration)
            # PySpark is there, and only a driver that can use it imports it.
            from yarrow.container.batch.spark.session import SparkHost

            own = self._bootstrap
            yarn = await asyncio.to_thread(spark_on_yarn, self._config, own)
            addresses = addresses_for(yarn, own.host, own.bind_host)
            host = SparkHost(java, self._config, own.slots, self._folders, self._spark_log, addresses, yarn)
            heartbeat = self._heartbeat_of(host)
        # ValueError: of times of heartbeats that do not fit together.
        except (SparkRequirementError, InvalidOptionValue, YarnError, ValueError) as error:
            cause = msgspec.structs.replace(failure_cause(error), is_final=True)
            return await self._refuse(driver, address, cause)
        try:
            host.start_java()
            return await self._serve_with(driver, address, host, heartbeat)
        finally:
            # An ending Java answers nothing, though it may take its time.
            close = partial(host.close, keep_classes=may_keep_classes(driver), before_end=heartbeat.stop)
            await asyncio.to_thread(close)
            heartbeat.stop()

    def _heartbeat_of(self, host: SparkHost) -> JavaHeartbeat:
        """Ends a Java that stands still: what follows is what follows from any end of Java."""

        def silent(seconds: float) -> None:
            host.java.give_up(
                f"Java, which runs Spark, has not answered for {seconds:g} s ({rpc.HEARTBEAT_TIMEOUT.key}), and was"
                f" ended. It was stopped, or has too little memory ({batch.SPARK_DRIVER_MEMORY.key})"
            )

        interval, timeout = (
            self._config.get(option).seconds for option in (rpc.HEARTBEAT_INTERVAL, rpc.HEARTBEAT_TIMEOUT)
        )
        return JavaHeartbeat(host.answer, silent, HeartbeatSettings(interval, timeout))

    async def _refuse(self, driver: BatchDriver, address: str, cause: FailureCause) -> DriverEnd:
        await driver.register(address, os.getpid())
        await driver.disconnect(cause)
        return DriverEnd(cause.message, orderly=False)

    async def _serve_with(
        self, driver: BatchDriver, address: str, host: SparkHost, heartbeat: JavaHeartbeat
    ) -> DriverEnd:
        from yarrow.container.batch.spark.batch_run import RunServices
        from yarrow.container.batch.spark.spark_pages import SparkPages

        bootstrap = self._bootstrap
        loop = asyncio.get_running_loop()
        connecting = asyncio.ensure_future(asyncio.to_thread(host.connect))
        telling: asyncio.Task[None] | None = None
        try:
            await driver.register(address, os.getpid())
            # Where YARN is asked for nothing, this never says anything.
            telling = loop.create_task(
                tell_what_is_awaited(host.waits_for, driver.master, bootstrap.driver_id)
            )
            application = await _first(connecting, driver.finished)
        except RegistrationRefusedError as error:
            return DriverEnd(str(error), orderly=False)
        except YarrowError as error:
            # Frames of the thread in which it was raised tell nothing.
            cause = failure_cause(error.with_traceback(None))
            # Another attempt has the same settings.
            is_final = isinstance(error, SparkSettingError)
            await driver.disconnect(msgspec.structs.replace(cause, is_final=is_final))
            return DriverEnd(str(error), orderly=False)
        finally:
            if telling is not None:
                telling.cancel()
        if application is None:
            return await driver.finished
        _watch_java(host, loop, driver)
        heartbeat.start()
        services = RunServices(
            host=host,
            master=driver.master,
            configuration=bootstrap.configuration,
            result_key=result_key(bootstrap.data_secret),
            clock=self._clock,
            part_bytes=bootstrap.max_message_bytes // 2,
            tokens=driver.tokens,
        )
        await driver.spark_started(host.hand_on_tokens)
        make_run = partial(_make_run, services)
        # Pages may be looked at in each session; without the option nobody can.
        pages = SparkPages(host.session, self._clock, services.part_bytes)
        await driver.session_started(application, make_run, pages.read if application.has_pages else None)
        return await driver.finished

    @property
    def _spark_log(self) -> Path:
        """The log of Spark, beside the driver's own."""
        return self._log_file.with_name(f"{self._log_file.stem}-spark.log")


class _EndingDriver(Protocol):
    """What of a SparkDriver tells how it ends."""

    has_finished_run: bool
    finished: asyncio.Future[DriverEnd]


def may_keep_classes(driver: _EndingDriver) -> bool:
    """Whether Java may take its time to write its classes: a job has finished, and somebody waits for this end."""
    finished = driver.finished
    return (
        driver.has_finished_run and finished.done() and not finished.cancelled() and finished.result().orderly
    )


def remove_files(folder: Path) -> None:
    """Removes what the driver has put into its folder; the folder is its parent's."""
    with contextlib.suppress(OSError):
        for left in folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


@contextlib.asynccontextmanager
async def _rpc(bootstrap: SparkDriverBootstrap, config: Settings) -> AsyncIterator[RpcService]:
    """A started service on a free port."""
    settings = GrpcSettings(
        application_id=bootstrap.application_id,
        bind_host=bootstrap.bind_host,
        host=bootstrap.host,
        port=0,
        identity=bootstrap.identity,
        max_message_bytes=bootstrap.max_message_bytes,
        ask_timeout=config.get(rpc.ASK_TIMEOUT).seconds,
        connect_timeout=config.get(rpc.CONNECT_TIMEOUT).seconds,
    )
    service = RpcService([GrpcTransport(settings)])
    await service.start()
    try:
        yield service
    finally:
        await service.stop()


def _make_run(services: RunServices, submission: BatchSubmission, folder: Path) -> DriverRun:
    if submission.is_pipeline:
        from yarrow.container.batch.spark.pipeline_run import PipelineRun

        return PipelineRun(submission, services, folder)
    from yarrow.container.batch.spark.batch_run import BatchRun

    return BatchRun(submission, services, folder)


async def _first(
    connecting: asyncio.Future[SparkApplication], finished: asyncio.Future[DriverEnd]
) -> SparkApplication | None:
    """The application; None if the driver is told to end before Spark has started. Raises SparkStartError."""
    either: set[asyncio.Future[Any]] = {connecting, finished}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if connecting.done():
        return connecting.result()
    connecting.cancel()
    return None


def _watch_java(host: SparkHost, loop: asyncio.AbstractEventLoop, driver: BatchDriver) -> None:
    """Tells the driver when Java ends."""

    def watch() -> None:
        host.java.wait()
        with contextlib.suppress(RuntimeError):  # the loop has closed: the process is ending
            loop.call_soon_threadsafe(driver.java_ended, host.java.lost())

    threading.Thread(target=watch, name="java watch", daemon=True).start()


def _watch_parent(folder: Path, parent: int, driver: BatchDriver) -> None:
    """Ends the driver at the end of standard input: its parent is gone, or wants it to end."""
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        lives = os.getppid() == parent
        cause = "the process that started it " + ("has told it to end" if lives else "has ended")
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(partial(driver.finish, cause, orderly=lives))
        if not lives:
            # Storage may be silent, and a dead master removes nothing.
            threading.Thread(target=driver.orphaned, name="orphaned run", daemon=True).start()
        signs = SignsOfWork(folder)
        wait_for_forced_end(lambda: os.getppid() == parent, signs.came, threading.Event().wait)
        # The kernel ends Java with this process, and Java's end is that of its Python processes.
        if os.getppid() == parent:
            remove_files(folder)
        else:
            remove_orphaned(folder)
        os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def wait_for_forced_end(
    parent_lives: Callable[[], bool], has_worked: Callable[[], bool], wait: Callable[[float], object]
) -> None:
    """Returns when a driver that has been told to end must be ended by force; `wait` gets seconds.

    `has_worked`: whether the driver has given a sign of work since it was asked last.
    """
    waited = idle = 0.0
    while parent_lives():
        if idle >= _ENDING_LIMIT or waited >= _LONGEST_LIMIT:
            return
        wait(_LOOK)
        waited, idle = waited + _LOOK, 0.0 if has_worked() else idle + _LOOK
    wait(max(0.0, min(_ORPHAN_LIMIT, _ENDING_LIMIT - idle, _LONGEST_LIMIT - waited)))


if __name__ == "__main__":
    sys.exit(main())
