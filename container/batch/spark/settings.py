"""Settings of a driver's Spark: configuration -> keys of Spark and the command of its JVM. Pure.

Owner: none. Programs cannot change what keeps a job private (loopback addresses, authentication, encryption), nor
what the stages rely on. They can set every other `spark.*` key.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from yarrow.common.values.secret_keys import is_secret_key
from yarrow.container.batch.spark.yarn_settings import SparkOnYarn, yarn_settings
from yarrow.runtime.config.options import batch
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.spark_options import (
    LOCAL,
    LOCAL_CLUSTER,
    SET_BY_ENGINE,
    chosen_master,
    refuse_other_values,
    spark_keys,
)
from yarrow.runtime.rpc.loopback import LOOPBACK
from yarrow.runtime.yarn.hadoop_overlay import configured_properties

#: Bytes of the secret between Spark's processes on this host.
_SECRET_BYTES: Final = 32
DAEMON_MODULE: Final = "yarrow.container.batch.spark.tasks.python_daemon"

#: Keys of Spark that the engine sets: programs must leave them out.
FIXED: Final[Mapping[str, str]] = {
    # All of a local application's ports are reached from this host alone.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    **SET_BY_ENGINE,
    # Python's sockets have file permissions in place of a port.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": DAEMON_MODULE,
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
}

#: Keys of Spark that the engine sets where the program does not.
_DEFAULTS: Final[Mapping[str, str]] = {
    "spark.app.name": "yarrow",
    # A row is a chunk of records already: batches are bounded by bytes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    # Each stage is one opaque function: compiling code around it costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.shuffle.compress": "true",
    "spark.ui.showConsoleProgress": "false",
    # The driver asks for the progress of the present run only.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "200",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.eventLog.enabled": "false",
    # Milliseconds. An executor that was alone finds the one that replaces another in time to keep second copies there.
    "spark.storage.cachedPeersTtl": "1000",
    "spark.port.maxRetries": "64",
    "spark.log.level": "WARN",
}

_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)

_LOG4J: Final = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss,SSS}} %-5p %c - %m%n%ex
# A failed task is told by the run that it ends, with the user's own traceback.
logger.scheduler.name = org.apache.spark.scheduler.TaskSetManager
logger.scheduler.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2
logger.write.level = off
"""


@dataclass(frozen=True, slots=True)
class SparkFolders:
    """Folders of one driver, below its working directory."""

    working: Path
    #: Spark's jars; None = those of PySpark.
    jars: Path | None = None

    @property
    def local(self) -> Path:
        """Shuffle files and spilled data."""
        return self.working / "spark"

    @property
    def temporary(self) -> Path:
        """Temporary files of Java."""
        return self.working / "java"

    @property
    def sockets(self) -> Path:
        """Sockets between Java and its Python processes."""
        return self.working / "sockets"

    @property
    def attempts(self) -> Path:
        """What tasks spill."""
        return self.working / "tasks"

    @property
    def home(self) -> Path:
        """Spark's home for executors on this host: a link to its jars, and their working folders."""
        return self.working / "home"

    def create(self) -> None:
        """Makes all of them, for this user alone."""
        for folder in (self.local, self.temporary, self.sockets, self.attempts):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def spark_master(config: Settings, slots: int) -> str:
    """`spark.master`, else one thread for each slot.

    Raises InvalidOptionValue for a master that Yarrow does not use.
    """
    return chosen_master(config) or f"local[{slots}]"


def has_executors(master: str) -> bool:
    """Whether tasks run in executors, which are processes of their own, and not in the driver's JVM."""
    return LOCAL.fullmatch(master) is None


def _for_executors(master: str, host: str, bind_host: str, secret: str) -> dict[str, str]:
    """What differs where tasks run in executors."""
    if not has_executors(master):
        return {}
    on_this_host = LOCAL_CLUSTER.fullmatch(master) is not None
    return {
        "spark.driver.host": LOOPBACK if on_this_host else host,
        "spark.driver.bindAddress": LOOPBACK if on_this_host else bind_host,
        # The driver's folder of sockets is not on their hosts. Spark's own secret guards ports on the loopback address.
        "spark.python.unix.domain.socket.enabled": "false",
        # Modules in an executor's working directory never precede the engine's own.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        **({"spark.authenticate.secret": secret} if on_this_host else {}),
    }


def spark_settings(
    config: Settings,
    slots: int,
    folders: SparkFolders,
    addresses: tuple[str, str] = (LOOPBACK, LOOPBACK),
    yarn: SparkOnYarn | None = None,
) -> dict[str, str]:
    """Every key that Spark gets; `addresses`: the name of this host for others, and the address to listen at.

    `yarn` is what an application on YARN is given besides; None = the master is another one.

    Raises InvalidOptionValue for a key that only the engine may set.
    """
    own = spark_keys(config)
    refuse_other_values(own, FIXED)
    memory = config.get(batch.SPARK_DRIVER_MEMORY)
    master = spark_master(config, slots)
    return {
        **_DEFAULTS,
        **_hadoop_settings(config),
        **own,
        **FIXED,
        **_for_executors(master, *addresses, secrets.token_hex(_SECRET_BYTES)),
        **(yarn_settings(config, yarn) if yarn is not None else {}),
        "spark.master": master,
        "spark.driver.memory": f"{memory.bytes >> 20}m",
        # Its pages start apart from the session, and when somebody looks: see spark_pages.
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folders.local),
        # A plain path would lie in the file system that Hadoop's configuration names: a job that reads nothing from
        # there would need it.
        "spark.sql.warehouse.dir": f"file://{folders.temporary}",
    }


def _hadoop_settings(config: Settings) -> dict[str, str]:
    """The properties that the configuration gives Hadoop's clients, as Spark passes them on."""
    properties = configured_properties(config)
    return {f"spark.hadoop.{key}": value for key, value in properties.items() if not is_secret_key(key)}


def java_arguments(
    config: Settings,
    jars: Path,
    log_file: Path,
    folders: SparkFolders,
    hadoop: Path | None = None,
    login: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Arguments of the JVM that serves a driver; they hold no secret.

    `hadoop`: folder of Hadoop's configuration. `login`: Spark's keys for a login by keytab, which Java makes first.
    """
    memory = config.get(batch.SPARK_DRIVER_MEMORY)
    extra = config.below("spark.").get("driver.extraJavaOptions", "").split()
    # Java refuses two collectors.
    chosen = any(option.startswith("-XX:+Use") and option.endswith("GC") for option in extra)
    # Spark SQL reads files by pages of a megabyte. G1 leaves them where they are, and collects on all cores. The serial
    # collector copies them while all tasks stand still.
    reads_much = config.get(batch.SPARK_FULL_COMPILER)
    collector = [] if chosen else ["-XX:+UseG1GC" if reads_much else "-XX:+UseSerialGC"]
    return [
        # Jars first: Java takes an archive of classes only if no folder stands before them.
        "-cp",
        f"{jars}/*" + (f":{hadoop}" if hadoop is not None else ""),
        f"-Xmx{memory.bytes >> 20}m",
        "-XX:+IgnoreUnrecognizedVMOptions",
        # Most of a job's time is Python's: a better compiler and more threads to collect garbage cost more than they
        # save, unless Spark SQL reads much. Programs can choose others by spark.driver.extraJavaOptions.
        *([] if reads_much else ["-XX:TieredStopAtLevel=1"]),
        *collector,
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={log_file.parent}/java_error_%p.log",
        f"-Djava.io.tmpdir={folders.temporary}",
        f"-Dlog4j2.configurationFile={folders.working / 'log4j2.properties'}",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "--add-modules=jdk.incubator.vector",
        *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENED),
        *extra,
        "org.apache.spark.deploy.SparkSubmit",
        "--conf",
        f"spark.driver.memory={memory.bytes >> 20}m",
        *(argument for key, value in login.items() for argument in ("--conf", f"{key}={value}")),
        "pyspark-shell",
    ]


def log4j_properties(log_file: Path) -> str:
    """Log4j's configuration: warnings to the driver's log file."""
    return _LOG4J.format(path=log_file)
