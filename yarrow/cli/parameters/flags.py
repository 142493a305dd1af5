"""The table of all flags: their names, value types, options and help texts.

Names and letters are Flink's.

Owner: none; declarations only. Actions (action.py) list their flags in the order of help, and docs/cli.md is
made from the same lists. Nothing of the engine is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final


class Through(Enum):
    """How a flag reaches the configuration."""

    #: Its value overrides the configuration at once.
    SETTINGS = "settings"
    #: Together with the other flags of the job's target (targets.py).
    TARGET = "target"
    #: Together with the other flags of YARN, below -D (yarn_flags.py).
    YARN = "yarn"


def _as_given(value: Any) -> object:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag or argument of the command line."""

    #: The name by which an action finds its value.
    name: str
    #: The forms that users write, the short one first; () = an argument, known by its place.
    written: tuple[str, ...]
    help: str | None = None
    #: str or int for one value, list[str] for a repeatable one, bool for none.
    type: Any = str
    #: Default; ... = it is required.
    default: Any = None
    metavar: str | None = None
    hidden: bool = False
    least: int | None = None
    most: int | None = None
    #: The option that it sets; "" = none.
    key: str = ""
    #: Computes the option's value from the given one.
    value: Callable[[Any], object] = _as_given
    through: Through = Through.SETTINGS

    def with_help(self, text: str) -> Flag:
        """The same flag, with another text in the help of one action."""
        return replace(self, help=text)


def switch(name: str, *written: str, help: str | None = None, hidden: bool = False, **rest: Any) -> Flag:
    """A flag without a value: False if it is not given."""
    return Flag(name=name, written=written, help=help, type=bool, default=False, hidden=hidden, **rest)


def whole_path(path: str) -> str:
    """Makes a path below the command's folder absolute: the cluster has another folder."""
    return os.path.abspath(path) if os.path.exists(path) else path


def in_megabytes(size: str) -> str:
    """A size in the form of Flink's flags: a bare number counts megabytes."""
    return f"{size.strip()}m" if size.strip().isdigit() else size


# Flags of most actions.

DYNAMIC: Final = Flag(
    name="dynamic",
    written=("-D",),
    type=list[str],
    metavar="KEY=VALUE",
    help="Sets a configuration key.",
)
ADDRESS: Final = Flag(
    name="address",
    written=("-m", "--jobmanager"),
    metavar="HOST:PORT",
    help="REST address of the cluster; yarn-cluster: YARN.",
    key="rest.address",
    through=Through.TARGET,
)
TARGET: Final = Flag(
    name="target",
    written=("-t", "--target"),
    help="Where it runs: local, remote, yarn-session, yarn-per-job, yarn-application (execution.target).",
    key="execution.target",
    through=Through.TARGET,
)
OLD_TARGET: Final = replace(
    TARGET, name="executor", written=("-e", "--executor"), help="The same as -t.", hidden=True
)

# Flags of programs.

ARGUMENTS: Final = Flag(name="arguments", written=(), type=list[str], help="The program and its arguments.")
PROGRAM_AND_SAVEPOINT: Final = Flag(
    name="arguments",
    written=(),
    type=list[str],
    default=...,
    metavar="PROGRAM PATH [ARGUMENTS]",
    help="Program and savepoint.",
)
LETTERS_AND_PROGRAM: Final = Flag(
    name="arguments",
    written=(),
    type=list[str],
    default=...,
    metavar="LETTERS PROGRAM [ARGUMENTS]",
    help="Dead letters (a file, a folder, a pattern, topic:NAME or table:FOLDER), and the repaired program.",
)
LETTER_UID: Final = Flag(
    name="uids",
    written=("--uid",),
    type=list[str],
    metavar="UID",
    help="Replay the letters of this operator alone.",
)
TRUST_PICKLES: Final = switch(
    "trusts_pickles",
    "--trust-pickles",
    help="Read pickled records, which may run code of whoever can write the letters.",
)
KAFKA_PROPERTIES: Final = Flag(
    name="kafka_properties",
    written=("--kafka-properties",),
    metavar="FILE",
    help="Properties of Kafka's client, if LETTERS is topic:NAME: one name=value a line.",
)
LETTERS_PER_SECOND: Final = Flag(
    name="rows_per_second",
    written=("--rows-per-second",),
    type=int,
    metavar="N",
    least=1,
    help="Read at most N letters a second for each operator.",
)
PYTHON: Final = Flag(
    name="python", written=("-py", "--python"), metavar="FILE", help="The program: a script."
)
PY_MODULE: Final = Flag(
    name="py_module",
    written=("-pym", "--pyModule"),
    metavar="MODULE",
    help="The program: a module, see -pyfs.",
)
ENTRY_CLASS: Final = Flag(
    name="entry_class",
    written=("-c", "--class"),
    metavar="MODULE",
    help="Module of an archive that is the program.",
)
DETACHED: Final = switch(
    "detached",
    "-d",
    "--detached",
    help="Do not wait for the job; needs a cluster.",
    key="execution.attached",
    # A command waits for its program, unless the configuration or -d says otherwise.
    value=lambda detached: False,
)
PARALLELISM: Final = Flag(
    name="parallelism",
    written=("-p", "--parallelism"),
    type=int,
    least=1,
    help="Parallelism of operators that set none.",
    key="parallelism.default",
)
SAVEPOINT: Final = Flag(
    name="savepoint",
    written=("-s", "--fromSavepoint"),
    help="Restore from a savepoint.",
    key="execution.state-recovery.path",
    value=whole_path,
)
HISTORY_UNTIL: Final = Flag(
    name="history_until",
    written=("--history-until",),
    metavar="TIME",
    help="Read the history up to TIME (or NOW) on Spark, then start the stream from its savepoint.",
    key="execution.history.until",
)
ALLOW_NON_RESTORED: Final = switch(
    "allow_non_restored",
    "-n",
    "--allowNonRestoredState",
    help="Leave out state of operators that the program lacks.",
    key="execution.state-recovery.ignore-unclaimed-state",
)
RESTORE_MODE: Final = Flag(
    name="restore_mode",
    written=("-rm", "--restoreMode"),
    help="The same as -cm.",
    hidden=True,
    key="execution.state-recovery.claim-mode",
    value=lambda mode: mode.upper() or None,
)
CLAIM_MODE: Final = Flag(
    name="claim_mode",
    written=("-cm", "--claimMode"),
    metavar="claim|no_claim",
    help="Whether the savepoint becomes the job's own.",
    key="execution.state-recovery.claim-mode",
    value=lambda mode: mode.upper() or None,
)
SHUTDOWN_ON_EXIT: Final = switch(
    "shutdown_on_exit",
    "-sae",
    "--shutdownOnAttachedExit",
    help="The job, and a per-job application, end with this command, however that ends; not in application mode.",
    key="execution.shutdown-on-attached-exit",
)
CLASSPATH: Final = Flag(
    name="classpath",
    written=("-C", "--classpath"),
    type=list[str],
    metavar="URL",
    help="Where Flink finds classes of Java; without effect.",
    hidden=True,
    # A key without effect as well: reading the configuration says so, once.
    key="pipeline.classpaths",
    value=lambda urls: ";".join(urls) or None,
)
CLUSTER_ID: Final = Flag(
    name="cluster_id",
    written=("-z", "--zookeeperNamespace"),
    metavar="ID",
    help="Name that tells clusters of one ZooKeeper apart.",
    key="high-availability.cluster-id",
)
PY_FILES: Final = Flag(
    name="py_files",
    written=("-pyfs", "--pyFiles"),
    metavar="A,B",
    help="Modules, packages and zips shipped to the workers.",
    key="python.files",
)
PY_ARCHIVES: Final = Flag(
    name="py_archives",
    written=("-pyarch", "--pyArchives"),
    metavar="A#DIR,...",
    help="Archives unpacked for the workers.",
    key="python.archives",
)
PY_REQUIREMENTS: Final = Flag(
    name="py_requirements",
    written=("-pyreq", "--pyRequirements"),
    metavar="FILE#CACHE",
    help="A requirements file for the workers.",
    key="python.requirements",
)
PY_EXECUTABLE: Final = Flag(
    name="py_executable",
    written=("-pyexec", "--pyExecutable"),
    help="Interpreter of the workers.",
    key="python.executable",
)
PY_CLIENT_EXECUTABLE: Final = Flag(
    name="py_client_executable",
    written=("-pyclientexec", "--pyClientExecutable"),
    help="Interpreter that runs the program.",
    key="python.client.executable",
)
PY_PATH: Final = Flag(
    name="py_path",
    written=("-pypath", "--pyPythonPath"),
    help="Entries for the workers' path.",
    key="python.pythonpath",
)
CODE: Final = switch("code", "--code", help="Show the code generated for the chains.")
FIRST_JOB: Final = switch(
    "first_job", "--first-job", help="Compares the first job alone, whatever the program executes behind it."
)
AS_JSON: Final = switch("as_json", "--json", help="Prints the answer as JSON.")
OPEN_FUNCTIONS: Final = switch(
    "open_functions",
    "--open",
    help="Opens functions with state here, and reads what sources and sinks have stored.",
)
WHERE: Final = Flag(name="where", written=(), default="local", help="local or remote.")
HOST: Final = Flag(name="host", written=(), help="Host of a remote cluster.")
PORT: Final = Flag(name="port", written=(), type=int, help="Its REST port.")

# Flags of jobs.

JOB_ID: Final = Flag(name="job_id", written=(), default=..., help="The job.")
JOBS: Final = Flag(name="arguments", written=(), type=list[str], help="The job.")
RUNNING: Final = switch("running", "-r", "--running", help="Running jobs only.")
SCHEDULED: Final = switch("scheduled", "-s", "--scheduled", help="Scheduled jobs only.")
EVERY: Final = switch("every", "-a", "--all", help="All jobs, ended ones too.")
INTERVAL: Final = Flag(
    name="interval",
    written=("--every",),
    metavar="TIME",
    help="Time between two runs, as '10 min'; the first one is at once.",
)
CRON: Final = Flag(
    name="cron",
    written=("--cron",),
    metavar="EXPRESSION",
    help="Times of the runs: minute, hour, day of month, month, day of week.",
)
TIME_ZONE: Final = Flag(
    name="time_zone",
    written=("--time-zone",),
    metavar="ZONE",
    help="Whose clock --cron means, as Europe/Berlin; UTC without it.",
)
WITH_SAVEPOINT: Final = switch(
    "with_savepoint",
    "-s",
    "--withSavepoint",
    help="Take a savepoint before, in DIR. Deprecated: use stop.",
)
DISPOSE: Final = Flag(
    name="dispose_path",
    written=("-d", "--dispose"),
    metavar="PATH",
    help="Delete this savepoint instead.",
)
FORMAT: Final = Flag(
    name="format_type",
    written=("-type", "--type"),
    default="canonical",
    metavar="canonical|native",
    help="Form of the savepoint.",
)
NOT_WAITING: Final = switch("detached", "-detached", "--detached", help="Do not wait for the savepoint.")
NEW_PARALLELISM: Final = Flag(
    name="parallelism",
    written=(),
    type=int,
    default=...,
    least=1,
    help="Its parallelism from now on.",
)
LIMITED: Final = Flag(
    name="limited",
    written=(),
    type=list[str],
    metavar="[NAME [ROWS]]",
    help="A source or sink, by uid or operator id, and its rows a second; `none` = any number.",
)
BYTES_PER_SECOND: Final = Flag(
    name="bytes_per_second", written=("--bytes",), metavar="BYTES", help="Its bytes a second, too."
)
SAVEPOINT_PATH: Final = Flag(
    name="directory",
    written=("-p", "--savepointPath"),
    metavar="DIR",
    help="Where the savepoint goes.",
)
DRAIN: Final = switch(
    "drain", "-d", "--drain", help="Send the last watermark before, so that all timers fire."
)
FULL: Final = switch("full", "-full", "--full", help="Refer to nothing of earlier checkpoints.")

# Flags of clusters.

APPLICATION: Final = Flag(
    name="application",
    written=(),
    metavar="[APPLICATION]",
    help="Id or name; the properties file's without.",
)
PROXY_PORT: Final = Flag(
    name="port",
    written=("--port",),
    type=int,
    default=0,
    least=0,
    most=65535,
    help="Port; a free one without.",
)
DUMP: Final = Flag(
    name="file",
    written=(),
    default=...,
    metavar="FILE",
    help="A `scheduler-....json` of the log folder.",
)
PAGE: Final = Flag(
    name="source",
    written=("--from",),
    metavar="PATH",
    help="The file, where it is at hand; Maven gets it without.",
)
SESSION_DETACHED: Final = DETACHED.with_help("Return when the session runs, and leave it running.")


# Flags of YARN: in `session` they have Flink's own letters, in `run` a y before them. Fields of YarnFlags
# have their names.


def _yarn(name: str, *written: str, key: str, **rest: Any) -> Flag:
    return Flag(name=name, written=written, key=key, through=Through.YARN, **rest)


SESSION_ID: Final = _yarn(
    "application_id",
    "-id",
    "--applicationId",
    key="yarn.application.id",
    metavar="APPLICATION",
    help="Attach to a session, by id or name.",
)
CONTAINERS: Final = _yarn(
    "containers",
    "-n",
    "--container",
    key="yarn.initial-task-executors",
    type=int,
    least=1,
    help="TaskExecutors taken first and kept.",
)
MASTER_MEMORY: Final = _yarn(
    "master_memory",
    "-jm",
    "--jobManagerMemory",
    key="jobmanager.memory.process.size",
    value=in_megabytes,
    metavar="SIZE",
    help="Memory of the master; MB without unit.",
)
TASK_MEMORY: Final = _yarn(
    "task_memory",
    "-tm",
    "--taskManagerMemory",
    key="taskmanager.memory.process.size",
    value=in_megabytes,
    metavar="SIZE",
    help="Memory of a TaskExecutor; MB without unit.",
)
SLOTS: Final = _yarn(
    "slots",
    "-s",
    "--slots",
    key="taskmanager.numberOfTaskSlots",
    type=int,
    least=1,
    help="Slots of a TaskExecutor.",
)
QUEUE: Final = _yarn(
    "queue", "-qu", "--queue", key="yarn.application.queue", help="Queue of the application."
)
NAME: Final = _yarn("name", "-nm", "--name", key="yarn.application.name", help="Name of the application.")
APPLICATION_TYPE: Final = _yarn(
    "application_type",
    "-at",
    "--applicationType",
    key="yarn.application.type",
    help="Tag of the application.",
)
SHIP: Final = _yarn(
    "ship",
    "-t",
    "--ship",
    key="yarn.ship-files",
    type=list[str],
    value=list,
    metavar="PATH",
    help="Files and folders put into every container.",
)
NODE_LABEL: Final = _yarn(
    "node_label",
    "-nl",
    "--nodeLabel",
    key="yarn.application.node-label",
    help="Node label of the application.",
)
NAMESPACE: Final = _yarn(
    "zookeeper_namespace",
    "-z",
    "--zookeeperNamespace",
    key="high-availability.cluster-id",
    metavar="ID",
    help="Name that tells clusters of one ZooKeeper apart.",
)
ENVIRONMENT: Final = _yarn(
    "environment",
    "--env",
    key="yarn.environment",
    metavar="auto|none|ARCHIVE",
    help="Python of the containers on YARN: the active environment packed, the nodes' own, an archive on HDFS.",
)
#: All of them: each sets a field of YarnFlags.
YARN_FLAGS: Final = (
    SESSION_ID,
    CONTAINERS,
    MASTER_MEMORY,
    TASK_MEMORY,
    SLOTS,
    QUEUE,
    NAME,
    APPLICATION_TYPE,
    SHIP,
    NODE_LABEL,
    NAMESPACE,
    ENVIRONMENT,
)
#: Flags for the start of an application: a running one ignores them.
OF_THE_START: Final = (
    CONTAINERS,
    MASTER_MEMORY,
    TASK_MEMORY,
    SLOTS,
    QUEUE,
    NAME,
    APPLICATION_TYPE,
    SHIP,
    NODE_LABEL,
    ENVIRONMENT,
)
QUERY: Final = switch("query", "-q", "--query", help="Show nodes, memory, cores and queues of YARN instead.")
STREAMING: Final = switch("streaming", "-st", "--streaming", hidden=True)
JAR: Final = Flag(name="jar", written=("-j", "--jar"), hidden=True)
SESSION_ADDRESS: Final = Flag(name="address", written=("-m", "--jobmanager"), hidden=True)


def of_run(flag: Flag) -> Flag:
    """The `run` form of a flag of `session`: `-yqu`, `--yarnqueue` for `-qu`, `--queue`; --env is the same in both."""
    if flag is ENVIRONMENT:
        return flag
    written = tuple(
        f"--yarn{text[2:]}" if text.startswith("--") else f"-y{text[1:]}" for text in flag.written
    )
    return replace(flag, written=written)


APPLICATION_ID: Final = replace(of_run(SESSION_ID), help="The application on YARN, by id or name.")
YARN_NAMESPACE: Final = replace(of_run(NAMESPACE), help="The same as -z.", hidden=True)
YARN_DYNAMIC: Final = replace(
    DYNAMIC, name="yarn_dynamic", written=("-yD",), help="The same as -D.", hidden=True
)
YARN_DETACHED: Final = replace(of_run(DETACHED), name="yarn_detached", help="The same as -d.", hidden=True)
#: Their `run` forms.
YARN_OF_RUN: Final = (
    *map(of_run, OF_THE_START[:-1]),
    YARN_NAMESPACE,
    ENVIRONMENT,
    YARN_DYNAMIC,
    YARN_DETACHED,
    of_run(QUERY),
    of_run(STREAMING),
    of_run(JAR),
)
