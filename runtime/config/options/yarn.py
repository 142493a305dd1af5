"""Options of applications on YARN: requests to YARN, shipped files, and how clients find an application.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not. Flink's yarn.* keys that are missing here have no meaning in Yarrow
(jars, JVMs) and are accepted with a warning.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import (
    BOOLEAN,
    COUNT,
    DURATION,
    MEMORY_SIZE,
    PORT_RANGE,
    POSITIVE,
    STRING,
    STRINGS,
    integer,
    list_of,
)
from yarrow.runtime.config.values.option import option, optional

_COMMA_SEPARATED: Final = list_of(STRING, separators=",;", example="a,b")

APPLICATION_ID: Final = optional(
    "yarn.application.id",
    STRING,
    "The running application that a command addresses, as `application_1700000000000_0001`.",
    unset="the session of the properties file",
)
APPLICATION_NAME: Final = optional(
    "yarn.application.name",
    STRING,
    "The application's name on YARN.",
    unset="`Yarrow session cluster`, or the job's name",
)
SHIP_KEYTAB: Final = option(
    "yarn.security.kerberos.ship-local-keytab",
    BOOLEAN,
    "true",
    "Whether the keytab of `security.kerberos.login.keytab` goes to the ApplicationMaster, which gets new delegation"
    " tokens by it. No other container gets it.",
)
LOCALIZED_KEYTAB: Final = optional(
    "yarn.security.kerberos.localized-keytab-path",
    STRING,
    "The path of the keytab on every node, if `yarn.security.kerberos.ship-local-keytab` is false.",
    unset="the ApplicationMaster has no keytab",
)
APPLICATION_TYPE: Final = optional(
    "yarn.application.type",
    STRING,
    "The application's type on YARN. Skein fixes it to `skein`: another value is taken as a tag of the"
    " application.",
    unset="`skein`",
)
APPLICATION_QUEUE: Final = optional(
    "yarn.application.queue", STRING, "The queue that the application is submitted to.", unset="`default`"
)
APPLICATION_NODE_LABEL: Final = optional(
    "yarn.application.node-label",
    STRING,
    "The node label of the application's containers.",
    unset="the queue's own",
)
TASK_MANAGER_NODE_LABEL: Final = optional(
    "yarn.taskmanager.node-label",
    STRING,
    "The node label of the containers of TaskExecutors.",
    unset="`yarn.application.node-label`",
    fallback_keys=("yarn.application.node-label",),
)
APPLICATION_PRIORITY: Final = option(
    "yarn.application.priority",
    integer(minimum=-1, example="5"),
    "-1",
    "The application's priority; -1: YARN's. Skein submits with YARN's: another value is accepted with a"
    " warning.",
)
TAGS: Final = optional("yarn.tags", _COMMA_SEPARATED, "Tags of the application on YARN.", unset="none")
APPLICATION_ATTEMPTS: Final = optional(
    "yarn.application-attempts",
    POSITIVE,
    "How often the ApplicationMaster may be started; YARN's yarn.resourcemanager.am.max-attempts limits it.",
    unset="1; 2 with high availability",
)
ATTEMPT_FAILURES_VALIDITY_INTERVAL: Final = option(
    "yarn.application-attempt-failures-validity-interval",
    integer(minimum=-1, example="10000"),
    "10000",
    "Milliseconds after which a failed attempt does not count any more. Skein has no such interval: every"
    " failed"
    " attempt counts.",
)
APPLICATION_MASTER_PORT: Final = option(
    "yarn.application-master.port", PORT_RANGE, "0", "Port, or range of ports, of the master's RPC on YARN."
)
APP_MASTER_VCORES: Final = option(
    "yarn.appmaster.vcores", POSITIVE, "1", "Cores of the ApplicationMaster's container."
)
CONTAINER_VCORES: Final = option(
    "yarn.containers.vcores",
    integer(minimum=-1, example="2"),
    "-1",
    "Cores of a TaskExecutor's container; -1: its number of slots.",
)
SPARK_DRIVER_MEMORY: Final = optional(
    "yarn.spark-driver.memory",
    MEMORY_SIZE,
    "Memory of the container in which the SparkDriver of a bounded job runs: Java and Python processes"
    " together.",
    unset="`spark.driver.memory`, 384 MiB or a tenth of it, 256 MiB, and 512 MiB for each core",
)
SPARK_DRIVER_VCORES: Final = option(
    "yarn.spark-driver.vcores",
    integer(minimum=-1, example="2"),
    "-1",
    "Cores of a SparkDriver's container, which are the tasks that run in it at a time; -1: the slots of a"
    " TaskExecutor.",
)
SHIP_FILES: Final = optional(
    "yarn.ship-files",
    STRINGS,
    "Files and directories, local or on HDFS, that are put into every container of the application.",
    unset="none",
    deprecated_keys=("yarn.ship-directories",),
)
SHIP_ARCHIVES: Final = optional(
    "yarn.ship-archives",
    STRINGS,
    "Archives, local or on HDFS, that are unpacked in every container of the application.",
    unset="none",
)
PROVIDED_LIB_DIRS: Final = optional(
    "yarn.provided.lib.dirs",
    STRINGS,
    "Directories on HDFS whose files every container gets; nodes keep them, they are not uploaded again.",
    unset="none",
)
PROVIDED_USER_LIB_DIR: Final = optional(
    "yarn.provided.usrlib.dir",
    STRING,
    "A directory on HDFS with the user's own modules and files, read by containers as their `usrlib`.",
    unset="none",
)
STAGING_DIRECTORY: Final = optional(
    "yarn.staging-directory",
    STRING,
    "Directory on HDFS below which environments and files of applications are kept.",
    unset="the user's home directory on HDFS",
)
FILE_REPLICATION: Final = option(
    "yarn.file-replication",
    integer(minimum=-1, example="3"),
    "-1",
    "Replication of files that a submission writes to HDFS; -1: HDFS's default.",
)
VIEW_ACLS: Final = optional(
    "yarn.view.acls",
    STRING,
    "Users and groups that may view the application: `user1,user2 group1`; `*`: everybody.",
    unset="the submitting user",
)
MODIFY_ACLS: Final = optional(
    "yarn.modify.acls",
    STRING,
    "Users and groups that may change the application: `user1,user2 group1`; `*`: everybody.",
    unset="the submitting user",
)
DEPLOYMENT_TIMEOUT: Final = option(
    "yarn.deployment-timeout",
    DURATION,
    "10 min",
    "How long a client waits for an application that it has submitted, until the application's REST "
    "answers. The client then kills the application and says why. A key of Yarrow alone: Flink's clients "
    "wait for ever.",
)
PROPERTIES_FILE_LOCATION: Final = optional(
    "yarn.properties-file.location",
    STRING,
    "Directory of the properties file, which names the session that a plain `yarrow run` uses, and of the"
    " files with"
    " the secrets of the user's applications.",
    unset="the directory for temporary files",
)
HEARTBEAT_INTERVAL: Final = option(
    "yarn.heartbeat.interval",
    POSITIVE,
    "5",
    "Seconds between two looks of the ResourceManager at its containers while none is waited for.",
    deprecated_keys=("yarn.heartbeat-delay",),
)
CONTAINER_REQUEST_INTERVAL: Final = option(
    "yarn.heartbeat.container-request-interval",
    COUNT,
    "500",
    "Milliseconds between two messages of Skein's ApplicationMaster to YARN, by which it asks for "
    "containers and hears of them. The master looks at pending containers as often.",
)
PROXY_ALLOW_CANCEL: Final = option(
    "yarn.proxy.allow-cancel",
    BOOLEAN,
    "false",
    "Whether YARN's proxy may cancel and stop jobs. The proxy knows no token: everybody whom YARN lets "
    "view the application then can. A key of Yarrow alone.",
)
ENVIRONMENT: Final = option(
    "yarn.environment",
    STRING,
    "auto",
    "The Python environment of the containers. `auto` packs the active environment and keeps it on HDFS. "
    "With `none` nodes have the client's interpreter under the same path. An `hdfs://` address names an "
    "archive that was packed before. A key of Yarrow alone.",
)
INITIAL_TASK_EXECUTORS: Final = option(
    "yarn.initial-task-executors",
    COUNT,
    "0",
    "TaskExecutors that an application takes first and keeps, whether jobs need them or not; the rest come"
    " and go. A key"
    " of Yarrow alone.",
)
