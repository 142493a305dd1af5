"""The description of an application by its client: read by the ApplicationMaster, TaskExecutors and SparkDrivers.

Owner: none; frozen values. ApplicationDescription is written into every container, and readers of its logs
see it. So it holds no secret: sensitive keys are removed from the configuration before.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from yarrow.runtime.rpc.bootstrap import PemIdentity


class DeploymentMode(Enum):
    """Flink's three deployment modes."""

    #: Takes jobs by REST until it is stopped.
    SESSION = "session"
    #: Runs the one job that its client has compiled, and ends with it.
    PER_JOB = "per-job"
    #: Runs `main()` of the user's program in the master's container, and ends with it and its last job.
    APPLICATION = "application"


class ProgramDescription(msgspec.Struct, frozen=True, kw_only=True):
    """The user's program of an application, as `yarrow run` got it. Paths are relative to the container."""

    #: Script, or archive of modules; empty with `module`.
    path: str = ""
    module: str = ""
    arguments: tuple[str, ...] = ()
    #: The files of -pyfs, in its order.
    python_files: tuple[str, ...] = ()


class ApplicationDescription(msgspec.Struct, frozen=True, kw_only=True):
    """All facts that a master needs besides its secrets."""

    mode: DeploymentMode
    name: str
    #: Flink keys as texts, complete, without sensitive ones.
    configuration: dict[str, str]
    #: -n N of a session: TaskExecutors taken first and kept.
    initial_task_executors: int = 0
    program: ProgramDescription | None = None
    #: True = the session ends with the client that started it (attached mode): the client sends heartbeats.
    attached: bool = False
    #: yarn.application-attempts.
    max_attempts: int = 1
    #: Interpreter in a container, absolute or relative to it.
    interpreter: str
    #: Its files on HDFS; the master notes now and then that they are used.
    environment: tuple[str, ...] = ()
    #: hdfs:// URL in which each application has a folder by its id, which is deleted with it. Empty = not
    #: known, not needed.
    applications_folder: str = ""


class MasterSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that make a process the master of the application."""

    application_secret_id: str
    identity: PemIdentity
    data_secret: bytes
    #: SHA-256 of the REST token: the master compares, and cannot tell the token to anybody.
    rest_token_hash: bytes
    #: Sensitive keys of the configuration.
    sensitive_configuration: dict[str, str] = {}
    #: What REST shows by TLS, from the client's keystore, and the authorities of clients that must show something.
    rest_identity: PemIdentity = PemIdentity()
    #: The content of the client's keytab, by which the master gets new delegation tokens; empty = it gets none.
    keytab: bytes = b""


class ContainerSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that make a process a TaskExecutor or a SparkDriver of the application, as its identity says."""

    application_secret_id: str
    identity: PemIdentity
    data_secret: bytes
    sensitive_configuration: dict[str, str] = {}


class ClientSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets by which a client drives the application; one file of mode 0600 for each application."""

    application_id: str
    name: str
    rest_token: str
    #: The pair by which Skein's own connections to the application are made.
    skein_certificate: bytes
    skein_key: bytes
    #: The key by which workers seal rows of execute_and_collect, derived from their secret.
    result_key: bytes = b""
    #: The last known address of REST; empty = nobody has looked.
    rest_address: str = ""
