"""The settings of a process that another one starts: one msgpack struct on its standard input.

Owner: the component that starts the process writes it; the process reads it once, before anything else. Never in
argv or the environment, because it holds the private key and the data secret. The pipe stays open for the
life of the parent: its end of file means that the parent is gone and the process must end.
"""

from __future__ import annotations

import struct
from typing import BinaryIO, Final, TypeVar

import msgspec

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID, ResourceManagerID
from yarrow.runtime.rpc.roles import SERVER_NAME, Role

#: Arguments of the interpreter for a TaskExecutor that reads its bootstrap. A file of the working directory may have
#: the name of any module; -P keeps that folder off the import path of the TaskExecutor, and of the template it forks.
TASK_EXECUTOR_COMMAND: Final = ("-P", "-m", "yarrow.container.process.task_executor_main")
#: A process of another version refuses the struct.
BOOTSTRAP_VERSION = 1
_LENGTH = struct.Struct("<I")
#: A bootstrap is configuration and three certificates: anything longer is invalid.
MAX_BOOTSTRAP_BYTES = 16 * 1024 * 1024


class BootstrapError(YarrowError):
    """Standard input did not carry a bootstrap struct of this version."""


class PemIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process's part in mutual TLS, as PEM texts; all empty = no TLS (tests and one process only)."""

    ca_certificate: bytes = b""
    certificate: bytes = b""
    private_key: bytes = b""
    #: The role in the certificate; None = none, and then peers need none either (a keystore of the user).
    role: Role | None = None
    #: The name in the certificates of peers.
    server_name: str = SERVER_NAME

    @property
    def is_empty(self) -> bool:
        """True when there is no certificate: TLS is off."""
        return not self.certificate


class ProcessBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a bootstrap that processes of every kind need."""

    version: int = BOOTSTRAP_VERSION
    #: Same for all processes of one cluster; compared in the RPC handshake.
    application_id: str
    #: Host name or address under which the control plane and other TaskExecutors reach this process.
    host: str
    #: Address to bind; usually `host`, or 0.0.0.0.
    bind_host: str
    identity: PemIdentity
    #: 32+ bytes shared by the processes of the application: proves data peers, and rows that only a pickle can
    #: carry to the client.
    data_secret: bytes
    #: All Flink keys of the cluster's configuration, as strings.
    configuration: dict[str, str]
    #: Exists; receives `.log`, `.out` and `.err` files.
    log_directory: str
    #: Prefix of these files' names; "" = the id of the process, for a folder that several processes share.
    log_name: str = ""
    #: Exists, mode 0700, this process's own: sockets, temporary files; its maker removes it.
    working_directory: str
    #: Limit of one RPC message in bytes.
    max_message_bytes: int = 10 * 1024 * 1024


class TaskExecutorBootstrap(ProcessBootstrap, frozen=True, kw_only=True):
    """Everything that a TaskExecutor needs before it can register. A job's own configuration comes with its graph."""

    resource_id: ResourceID
    #: `grpc://host:port/name`, and the token of the leader there.
    resource_manager_address: str
    resource_manager_id: ResourceManagerID
    #: Number of slots; 0 = as configured by taskmanager.numberOfTaskSlots.
    slots: int = 0
    #: False = all processes run on this host: workers need no TCP port for data.
    listen_tcp: bool = False
    #: True = user output also goes to the parent: frames on standard output (runtime/rpc/output_stream.py).
    forward_output: bool = False


class SparkDriverBootstrap(ProcessBootstrap, frozen=True, kw_only=True):
    """Everything that a SparkDriver needs before it can register; the job's configuration is over the cluster's."""

    driver_id: ResourceID
    job_id: JobID
    #: `grpc://host:port/name` of the BatchJobMaster.
    job_master_address: str
    #: Fencing token of both directions.
    job_master_id: JobMasterID
    #: Folder of Spark's jars; "" = those of PySpark.
    spark_jars: str = ""
    #: Cores that Spark uses on this host where no option names its master.
    slots: int = 1
    #: Our application on YARN in whose container it runs; "" = it runs in none.
    yarn_application: str = ""
    #: The TaskExecutor in whose slot it runs; "" = it runs in none.
    task_executor: str = ""


B = TypeVar("B", bound=ProcessBootstrap)


def encode_bootstrap(bootstrap: ProcessBootstrap) -> bytes:
    """The bytes to write to the child's standard input; leave the pipe open afterwards."""
    data = msgspec.msgpack.encode(bootstrap)
    return _LENGTH.pack(len(data)) + data


def read_bootstrap(stream: BinaryIO) -> TaskExecutorBootstrap:
    """Reads a TaskExecutor's struct from standard input (binary, blocking); the stream is left just behind it.

    Raises BootstrapError if the stream ends early or carries something else.
    """
    return _read(
        stream, TaskExecutorBootstrap, "TaskExecutor", "`yarrow taskmanager` or by a ResourceManager"
    )


def read_spark_driver_bootstrap(stream: BinaryIO) -> SparkDriverBootstrap:
    """The same for a SparkDriver. Raises BootstrapError."""
    return _read(stream, SparkDriverBootstrap, "SparkDriver", "the JobMaster of a job in batch mode")


def _read(stream: BinaryIO, kind: type[B], process: str, starter: str) -> B:
    by_hand = f"{process}s are started by {starter}, not by hand"
    header = _read_exactly(stream, _LENGTH.size, by_hand)
    (length,) = _LENGTH.unpack(header)
    if length > MAX_BOOTSTRAP_BYTES:
        raise BootstrapError(
            f"expected a bootstrap struct on standard input, found a length of {length} bytes"
        )
    data = _read_exactly(stream, length, by_hand)
    try:
        bootstrap = msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise BootstrapError(f"standard input carries no bootstrap struct of this version: {error}") from None
    if bootstrap.version != BOOTSTRAP_VERSION:
        raise BootstrapError(
            f"bootstrap struct has version {bootstrap.version}, this {process} reads {BOOTSTRAP_VERSION}:"
            " start it from the same installation as its cluster"
        )
    return bootstrap


def _read_exactly(stream: BinaryIO, size: int, by_hand: str) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            raise BootstrapError(f"standard input ended before the bootstrap struct: {by_hand}")
        data += part
    return data
