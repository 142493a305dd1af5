"""Options of processes of a cluster: registration, shut-down, directories and environment.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import DURATION, POSITIVE, STRING
from yarrow.runtime.config.values.option import option, optional

REGISTRATION_INITIAL_TIMEOUT: Final = option(
    "cluster.registration.initial-timeout",
    DURATION,
    "100 ms",
    "Pause after the first attempt of one component to register with another that got no answer;"
    " each further pause is twice as long.",
)
REGISTRATION_MAX_TIMEOUT: Final = option(
    "cluster.registration.max-timeout",
    DURATION,
    "30 s",
    "The longest pause between two attempts to register.",
)
REGISTRATION_ERROR_DELAY: Final = option(
    "cluster.registration.error-delay",
    DURATION,
    "10 s",
    "Pause after an attempt to register that failed with an error, such as a leader that leads no longer.",
)
REGISTRATION_REFUSED_DELAY: Final = option(
    "cluster.registration.refused-registration-delay",
    DURATION,
    "30 s",
    "Pause after an attempt to register at which the leader itself failed. A rejection (a TaskExecutor that nobody"
    " asked for, a job that has ended) is final for that leader, as in Flink.",
)
SHUTDOWN_TIMEOUT: Final = option(
    "cluster.services.shutdown-timeout",
    DURATION,
    "30 s",
    "How long the services of a process may take to shut down.",
    no_effect="each service has a bound of its own",
)
IO_POOL_SIZE: Final = optional(
    "cluster.io-pool.size",
    POSITIVE,
    "Threads for blocking calls of a control process.",
    unset="four times its cores",
    no_effect="blocking calls run on the thread pool of the event loop",
)
WORKING_DIR: Final = optional(
    "process.working-dir",
    STRING,
    "Where processes of embedded and standalone clusters make the folders they work in. In containers of YARN these lie"
    " in the container's own folder, which YARN removes.",
    unset="the first of `io.tmp.dirs`",
)
LOG_DIR: Final = optional(
    "env.log.dir", STRING, "Where processes write their logs.", unset="`log` beside `conf`"
)
PID_DIR: Final = option("env.pid.dir", STRING, "/tmp", "Where start and stop scripts keep process ids.")
HADOOP_CONF_DIR: Final = optional(
    "env.hadoop.conf.dir",
    STRING,
    "The directory of Hadoop's configuration files.",
    unset="`HADOOP_CONF_DIR` of the environment",
)
YARN_CONF_DIR: Final = optional(
    "env.yarn.conf.dir",
    STRING,
    "The directory of YARN's configuration files.",
    unset="`YARN_CONF_DIR` of the environment",
)
WEBHDFS_RETRY_TIMEOUT: Final = option(
    "fs.webhdfs.retry-timeout",
    DURATION,
    "1 min",
    "How long a process repeats a request to HDFS while HDFS restarts, fails over, is in safe mode or "
    "cannot be reached; 0: never. Clients give up after 10 s unless it is set. Yarrow's own.",
)
DEFAULT_SCHEME: Final = optional(
    "fs.default-scheme",
    STRING,
    "The file system of paths without a scheme, such as `hdfs://host:9000/`.",
    unset="the local file system",
)
