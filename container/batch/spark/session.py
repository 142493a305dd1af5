"""SparkHost: the JVM and the session of one driver.

Owner: the driver's main thread starts Java; a thread of the driver connects and makes the session. Must not run
jobs, nor put a secret into arguments, environment or settings of Spark: Spark makes its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import struct
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

import pyspark
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from yarrow.container.batch.driver.executor_disks import ExecutorDisks
from yarrow.container.batch.full_disks import REMEDY_OF_EXECUTORS, REMEDY_ON_YARN, full_disk
from yarrow.container.batch.spark.java.class_archive import ClassArchive
from yarrow.container.batch.spark.java.java_process import JavaProcess
from yarrow.container.batch.spark.java_errors import causes_of, first_line, message_of
from yarrow.container.batch.spark.kerberos_access import reason_of
from yarrow.container.batch.spark.lost_containers import last_lost_executor, yarns_reason
from yarrow.container.batch.spark.refused_settings import (
    SparkSettingError,
    refused_option_of_java,
    refused_setting,
)
from yarrow.container.batch.spark.requirements import JavaInstallation
from yarrow.container.batch.spark.settings import (
    SparkFolders,
    has_executors,
    java_arguments,
    log4j_properties,
    spark_settings,
)
from yarrow.container.batch.spark.yarn_application import YarnApplication
from yarrow.container.batch.spark.yarn_settings import SparkOnYarn
from yarrow.runtime.common.cache_folder import spark_classes_folder
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.private_files import private_opener
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_tokens import token_file
from yarrow.runtime.fs.hdfs_settings import configuration_folder
from yarrow.runtime.graph.batch.spark_options import spark_keys
from yarrow.runtime.rpc.loopback import LOOPBACK
from yarrow.runtime.rpc.messages import SparkApplication
from yarrow.runtime.rpc.spark_driver_process import SignsOfWork
from yarrow.runtime.yarn.hadoop_overlay import IMPATIENT_CALLS

_log = logging.getLogger(__name__)
#: Packages that PySpark names without their package.
_IMPORTED: Final = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
#: Longest path of a folder of sockets: the system takes 107 bytes of a path, and Spark's names in it have 42.
_LONGEST_SOCKET_FOLDER: Final = 60
#: Seconds between two looks for the file in which Java names its port.
_POLL: Final = 0.05
#: Seconds between two requests to end Spark jobs.
_CANCEL_SECONDS: Final = 0.2
#: What Spark's application says when it gives up because it has lost executors.
_TOO_MANY_LOST: Final = "executor failures"
#: The method by which a program ends Spark.
_STOP: Final = "stop"
_INT: Final = struct.Struct(">i")
#: A look whether Java can read HDFS ends soon.
_LOOK: Final[Mapping[str, str]] = {**IMPATIENT_CALLS, "dfs.client.failover.max.attempts": "4"}
#: What of Java's output is no reason of its end.
_TELLS_NOTHING: Final = re.compile(r"\tat |^Picked up JAVA_TOOL_OPTIONS: ")
_SCALA: Final = re.compile(r"spark-core_([\d.]+)-.*\.jar")
#: What of the driver's environment Java and Spark's Python processes get; secrets are not in it.
_KEPT_VARIABLES: Final = (
    "HOME",
    "LANG",
    "LC_ALL",
    "PATH",
    "PYTHONPATH",
    "TZ",
    "USER",
    "LD_LIBRARY_PATH",
    "HADOOP_CONF_DIR",
    "HADOOP_TOKEN_FILE_LOCATION",
    "HADOOP_USER_NAME",
    "YARN_CONF_DIR",
    "KRB5_CONFIG",
    "KRB5CCNAME",
    # With which the host tells each Java where its KDC is, or its authorities.
    "JAVA_TOOL_OPTIONS",
    "YARROW_DEBUG",
)


class SparkStartError(YarrowError):
    """Spark has not started: Java ended or took too long."""


class SparkStopError(YarrowError):
    """A function of a program wants to end Spark."""


class SparkTokensError(YarrowError):
    """Java of Spark has not taken new delegation tokens: whoever hands them over may try it again."""


class SparkHost:
    """Java with a Spark session. `start_java`, then `connect`; `close` ends everything."""

    def __init__(
        self,
        java: JavaInstallation,
        config: Settings,
        slots: int,
        folders: SparkFolders,
        log_file: Path,
        addresses: tuple[str, str] = (LOOPBACK, LOOPBACK),
        yarn: SparkOnYarn | None = None,
    ) -> None:
        """`log_file` takes Spark's warnings; what Java prints goes beside it.

        `addresses`: the name of this host for executors, and the address to listen at. `yarn`: what an application on
        YARN is given; None = the master is another one.

        Raises InvalidOptionValue for settings that Spark must not get.
        """
        self._installation = java
        self._config = config
        self._folders = folders
        self._log_file = log_file
        self._output = log_file.with_suffix(".out")
        self._settings = spark_settings(config, slots, folders, addresses, yarn)
        self._yarn = yarn
        self._application: YarnApplication | None = None
        self._java: JavaProcess | None = None
        self._gateway: Any = None
        self._session: SparkSession | None = None
        self._closing = threading.Event()
        self._archive: ClassArchive | None = None
        #: Descriptor of the folder of sockets, if its path is too long for the system.
        self._sockets: int | None = None

    @property
    def java(self) -> JavaProcess:
        """The process, once it was started."""
        assert self._java is not None
        return self._java

    @property
    def session(self) -> SparkSession:
        """The session, once connected."""
        assert self._session is not None
        return self._session

    def cancel_jobs(self, group: str, over: threading.Event) -> None:
        """Ends the Spark jobs of a group, again and again until `over` is set or Java has ended.

        A single request may come before a job begins.
        """
        while not over.is_set() and not self.java.has_ended():
            try:
                self.session.sparkContext.cancelJobGroup(group)
            except Exception as error:  # Java may end meanwhile
                _log.debug("the Spark jobs of %s could not be cancelled: %r", group, error)
            over.wait(_CANCEL_SECONDS)

    @property
    def has_executors(self) -> bool:
        """Whether tasks run in executors, which do not see the driver's folder."""
        return has_executors(self._settings["spark.master"])

    @property
    def addresses(self) -> tuple[str, str]:
        """The name of this host for executors, and the address to listen at."""
        return self._settings["spark.driver.host"], self._settings["spark.driver.bindAddress"]

    @property
    def working_folder(self) -> Path:
        """The driver's working directory."""
        return self._folders.working

    @property
    def local_folder(self) -> Path:
        """Where Java writes shuffle files, and what does not fit into its memory."""
        return self._folders.local

    def full_disk(self, text: str) -> str:
        """The full disk of Spark's own files, of which an error of Java tells, and the remedy."""
        if not self.has_executors:
            return full_disk(self.local_folder)
        return ExecutorDisks(REMEDY_OF_EXECUTORS if self._yarn is None else REMEDY_ON_YARN).full_disk(text)

    def start_java(self) -> None:
        """Starts Java; call it from the main thread."""
        self._folders.create()
        (self._folders.working / "log4j2.properties").write_text(
            log4j_properties(self._log_file), encoding="utf-8"
        )
        # Made here, because Java's files can be read by everybody.
        open(self._log_file, "ab", opener=private_opener).close()
        home = Path(pyspark.__file__).parent
        jars = self._folders.jars or home / "jars"
        if self.has_executors:
            # Spark starts executors by its home, and puts their working folders there.
            home = self._folders.home
            home.mkdir(mode=0o700)
            (home / "jars").symlink_to(jars)
        hadoop = configuration_folder() if self._yarn is None else self._yarn.hadoop
        login = {} if self._yarn is None else self._yarn.login
        arguments = java_arguments(self._config, jars, self._log_file, self._folders, hadoop, login)
        if self._folders.jars is None:
            # Jars of a container have another path each time: Java would not take their archive a second time.
            # A folder behind the jars, such as that of Hadoop's configuration, makes no difference to Java.
            self._archive = ClassArchive(
                spark_classes_folder(),
                self._installation.executable,
                jars,
                self._folders.temporary,
                SystemClock(),
            )
            arguments = [*self._archive.arguments(), *arguments]
        environment = java_environment(os.environ, home, self._announcement, hadoop)
        if self.has_executors:
            environment["SPARK_SCALA_VERSION"] = _scala_version(jars)
        self._java = JavaProcess(self._installation.executable, arguments, environment, self._output)

    @property
    def _announcement(self) -> Path:
        """The file into which Java writes its port and the secret of its gateway."""
        return self._folders.working / "gateway"

    def connect(self) -> SparkApplication:
        """Waits for Java, makes the session, and waits for executors on YARN.

        Raises SparkStartError, and SparkSettingError for a setting that Spark or Java refuses.
        """
        port, secret = self._wait_for_port()
        self._gateway = ClientServer(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        self._gateway.proc = None
        for name in _IMPORTED:
            java_import(self._gateway.jvm, name)
        if self._yarn is not None:
            self._application = YarnApplication(self._gateway.jvm, self._config, self._yarn)
        conf = SparkConf(loadDefaults=False, _jvm=self._gateway.jvm)
        conf.setAll(list(self._settings.items()))
        if not self.has_executors:
            conf.set("spark.python.unix.domain.socket.dir", self._socket_folder())
        context = self._start_spark(conf)
        # PySpark takes the interpreter of its functions from the environment otherwise.
        context.pythonExec = self._settings["spark.pyspark.python"]
        # A function of a program that ends the session would take it from all others.
        setattr(context, _STOP, _refuse_to_stop)
        if self._application is not None:
            self._application.await_executors(context, self._closing)
        return SparkApplication(
            application_id=str(context.applicationId),
            has_pages=self._config.get(batch.SPARK_UI_ENABLED),
            spark_master=str(context.master),
            spark_version=str(context.version),
        )

    def _start_spark(self, conf: SparkConf) -> SparkContext:
        """Makes the session; its context is returned. Raises SparkStartError and SparkSettingError."""
        try:
            context = SparkContext(gateway=self._gateway, conf=conf)
            session = SparkSession(context)
            # Spark reads the settings of SQL here, and not before the first query otherwise.
            session._jsparkSession.sessionState()
        except Exception as error:
            if refused := self.refused_setting(error, at_start=True):
                raise refused from error
            said = first_line(error) if self._yarn is None else yarns_reason(message_of(error).splitlines())
            raise SparkStartError(
                f"Spark did not start: {self._reason(said)}; see {self._log_file}"
            ) from error
        self._session = session
        return context

    def refused_setting(self, error: BaseException, *, at_start: bool = False) -> SparkSettingError | None:
        """The error to tell if Spark has failed because of a setting of the job or the cluster, else None."""
        return refused_setting(causes_of(error), spark_keys(self._config), at_start=at_start)

    def answer(self) -> None:
        """Returns when Java has answered; any thread may call it. Raises errors of py4j, or of the connection."""
        self._gateway.jvm.System.nanoTime()
        if lost := self.lost_application():
            self.java.give_up(lost)

    def why_unread(self, path: str) -> str:
        """Why Java cannot read a file of HDFS, in its words; "" = it can. Blocking."""
        java = self._gateway.jvm.org.apache.hadoop
        hadoop = java.conf.Configuration(self.session.sparkContext._jsc.hadoopConfiguration())
        for key, value in _LOOK.items():
            hadoop.set(key, value)
        named = java.fs.Path(path)
        try:
            # Of its own: Spark is to read with its own patience.
            files = java.fs.FileSystem.newInstance(named.toUri(), hadoop)
            try:
                files.getFileStatus(named)
            finally:
                files.close()
        except (Py4JError, PySparkException) as error:
            return first_line(error)
        return ""

    def hand_on_tokens(self) -> None:
        """Gives Spark the tokens in this container's file. Spark sends them to its ApplicationMaster and executors.

        Blocking. Spark has a message for that, by which it renews tokens where it has a keytab itself.
        Raises SparkTokensError.
        """
        path, session = token_file(), self._session
        if path is None or not self.has_executors or session is None:
            return
        try:
            jvm, spark = self._gateway.jvm, session.sparkContext._jsc.sc()
            messages = jvm.org.apache.spark.scheduler.cluster
            hadoop = jvm.org.apache.spark.deploy.SparkHadoopUtil.get()
            file = jvm.java.io.File(str(path))
            tokens = jvm.org.apache.hadoop.security.Credentials.readTokenStorageFile(
                file, session.sparkContext._jsc.hadoopConfiguration()
            )
            content = hadoop.serialize(tokens)
            update = getattr(messages, "CoarseGrainedClusterMessages$UpdateDelegationTokens")(content)
            spark.schedulerBackend().driverEndpoint().send(update)
        # AttributeError: `close` has stopped the session meanwhile.
        except (AttributeError, Py4JError, PySparkException, OSError) as error:
            raise SparkTokensError(
                f"Java of Spark's executors keeps its former delegation tokens: {first_line(error)}"
            ) from error
        _log.info("Java of Spark's executors gets the new delegation tokens")

    def lost_application(self) -> str:
        """How Spark's application on YARN has ended, though it is needed; "" = it has not, or runs elsewhere.

        Raises errors of py4j, or of the connection.
        """
        if self._application is None or self._session is None or self._closing.is_set():
            return ""
        end = self._application.end_of(self._session.sparkContext)
        why = last_lost_executor(self._log_file) if _TOO_MANY_LOST in end else ""
        return f"{end}. {why}" if why else end

    def waits_for(self) -> str:
        """What YARN has not granted yet; "" = nothing, or nothing is asked of YARN. Blocking."""
        if self._application is None or self._closing.is_set() or self.java.has_ended():
            return ""
        return self._application.waits_for()

    def _socket_folder(self) -> str:
        """A path of the folder of sockets that is short enough for Java and its Python processes."""
        folder = str(self._folders.sockets)
        if len(folder.encode()) <= _LONGEST_SOCKET_FOLDER:
            return folder
        self._sockets = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/{os.getpid()}/fd/{self._sockets}"

    def _wait_for_port(self) -> tuple[int, str]:
        seconds = self._config.get(batch.SPARK_START_TIMEOUT).seconds
        for _ in range(max(1, int(seconds / _POLL))):
            if self._announcement.exists():
                with self._announcement.open("rb") as stream:
                    (port,) = _INT.unpack(stream.read(_INT.size))
                    (length,) = _INT.unpack(stream.read(_INT.size))
                    secret = stream.read(length).decode("utf-8")
                self._announcement.unlink()
                return port, secret
            if self.java.has_ended():
                status, said = self.java.wait(), self._last_output()
                if refused := refused_option_of_java(said, spark_keys(self._config)):
                    raise refused
                raise SparkStartError(f"Java ended with the status {status} while Spark was starting: {said}")
            if self._closing.wait(_POLL):
                raise SparkStartError("the start of Spark was given up")
        raise SparkStartError(
            f"Spark has not started within {seconds:g} s ({batch.SPARK_START_TIMEOUT.key}); see {self._log_file}"
        )

    def _last_output(self) -> str:
        try:
            lines = self._output.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            lines = []
        said = " | ".join(line.strip() for line in lines if line.strip() and not _TELLS_NOTHING.search(line))
        return self._reason(said[-1000:]) or f"it printed nothing; see {self._log_file}"

    def _reason(self, said: str) -> str:
        """What Java says of its failed start; on YARN a login may be the reason."""
        return said if self._yarn is None else reason_of(said, os.environ)

    def close(self, *, keep_classes: bool = False, before_end: Callable[[], object] = lambda: None) -> None:
        """Ends Spark, Java and the Python processes below it; may be repeated.

        `keep_classes`: the classes that Java has loaded may be worth to be kept, since a job has run. `before_end` is
        called when Java is about to end: it answers nothing from then on.
        """
        self._closing.set()
        if self._java is None:
            return
        if self._application is not None and self._session is None and not self._java.has_ended():
            # Nobody else ends an application that waits for its first container.
            self._application.kill()
        if self._session is not None and not self._java.has_ended():
            vars(self._session.sparkContext).pop(_STOP, None)
            with contextlib.suppress(Exception):  # Java may end meanwhile, and all of it ends below.
                self._session.stop()
        self._session = None
        before_end()
        archive, self._archive = self._archive, None
        if archive is None or not archive.is_awaited:
            self._java.end()
        elif keep_classes:
            archive.begin()
            signs = SignsOfWork(self._folders.working)
            if self._java.end(await_end=partial(archive.await_written, self._java, signs.give)):
                archive.keep(signs.give)
        else:
            # Without the work of a job most classes are missing.
            self._java.end(0.0)
        if self._gateway is not None:
            with contextlib.suppress(Exception):
                self._gateway.shutdown()
        if self._sockets is not None:
            os.close(self._sockets)
            self._sockets = None


def _refuse_to_stop() -> NoReturn:
    raise SparkStopError(
        "spark.stop() would end Spark for all stages of the job: take it out. The session ends with the job"
    )


def java_environment(
    own: Mapping[str, str], spark_home: Path, announcement: Path, hadoop: Path | None = None
) -> dict[str, str]:
    """The environment of Java; `hadoop`: the folder of Hadoop's configuration, where the environment has another."""
    kept = {name: own[name] for name in _KEPT_VARIABLES if name in own}
    folders = {} if hadoop is None else dict.fromkeys(("HADOOP_CONF_DIR", "YARN_CONF_DIR"), str(hadoop))
    return {
        **kept,
        **folders,
        "SPARK_HOME": str(spark_home),
        "SPARK_CONNECT_MODE": "0",
        # Spark's web pages listen where this says.
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYTHONHASHSEED": "0",
        # A file of the working directory never precedes a module of the same name.
        "PYTHONSAFEPATH": "1",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(announcement),
    }


def _scala_version(jars: Path) -> str:
    """The version of Scala in the names of Spark's jars, which Spark's own scripts would set."""
    found = [_SCALA.fullmatch(path.name) for path in jars.glob("spark-core_*.jar")]
    return next((match[1] for match in found if match is not None), "")
