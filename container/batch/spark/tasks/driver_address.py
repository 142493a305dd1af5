"""DriverAddress: how a task reaches the driver of its run, on this host or on another, and gets its job from there.

Owner: the only thread of a Python process of Spark. On one host both are files of the driver's own folder. Elsewhere
both come over TCP with mutual TLS. Spark carries a task's key inside the function that it sends encrypted, and the
driver alone has the authority that has signed it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from yarrow.container.batch.driver.shared_job import SOCKET, SharedJob, read_shared_job
from yarrow.container.batch.driver.task_messages import (
    FilePart,
    FileWanted,
    JobWanted,
    SentJob,
    ToTaskMessage,
)
from yarrow.container.batch.full_disks import executor_folders
from yarrow.container.network.data_sockets import set_tcp_options
from yarrow.container.network.unix_sockets import connect_unix
from yarrow.container.protocol.framing import FramedSocket
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.private_files import private_opener
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.roles import Role
from yarrow.runtime.security.keystores import load_pair

#: Seconds for a connection to the driver.
_CONNECT_SECONDS: Final = 60.0
_KEY: Final = re.compile(r"[0-9a-f]{64}")
_DECODER: Final[msgspec.msgpack.Decoder[ToTaskMessage]] = msgspec.msgpack.Decoder(ToTaskMessage)


class JobNotSentError(YarrowError):
    """The driver has ended the connection before it had sent the job."""


class DriverAddress(Protocol):
    """The driver of a run; a value that Spark pickles."""

    def __hash__(self) -> int: ...

    @property
    def is_elsewhere(self) -> bool:
        """Whether a task may run in another container than the driver's."""
        ...

    def connect(self) -> socket.socket:
        """A connection for reports. Raises OSError."""
        ...

    def load(self) -> SharedJob:
        """The job of the run, with files of this host. Raises OSError, FrameError and JobNotSentError."""
        ...


@dataclass(frozen=True, slots=True)
class DriverOnThisHost:
    """A driver whose folder the task can read."""

    folder: str

    @property
    def is_elsewhere(self) -> bool:
        return False

    def connect(self) -> socket.socket:
        return connect_unix(os.path.join(self.folder, SOCKET))

    def load(self) -> SharedJob:
        return read_shared_job(self.folder)


@dataclass(frozen=True, slots=True)
class DriverElsewhere:
    """A driver on any host."""

    host: str
    port: int
    #: Tells runs apart: each has a port and an authority of its own.
    run: int
    identity: PemIdentity

    @property
    def is_elsewhere(self) -> bool:
        return True

    def connect(self) -> socket.socket:
        plain = socket.create_connection((self.host, self.port), _CONNECT_SECONDS)
        try:
            set_tcp_options(plain)
            context = tls_context(self.identity, ssl.PROTOCOL_TLS_CLIENT)
            connection = context.wrap_socket(plain, server_hostname=Role.SPARK_DRIVER.server_name)
            connection.settimeout(None)
        except BaseException:
            plain.close()
            raise
        return connection

    def load(self) -> SharedJob:
        folder = tempfile.mkdtemp(prefix="yarrow-job-", dir=scratch_folder())
        with contextlib.closing(FramedSocket(self.connect(), _DECODER)) as frames:
            frames.send(JobWanted())
            sent = frames.receive()
            if not isinstance(sent, SentJob):
                raise JobNotSentError("the driver has not sent the job: its run has ended")
            job = msgspec.msgpack.decode(sent.job, type=SharedJob)
            paths = {}
            for key in job.file_paths:
                if not _KEY.fullmatch(key):
                    raise JobNotSentError(f"{key!r} is no key of a shipped file")
                paths[key] = os.path.join(folder, key)
                frames.send(FileWanted(key=key))
                with open(paths[key], "wb", opener=private_opener) as stream:
                    stream.writelines(_parts(frames, key))
        return msgspec.structs.replace(job, file_paths=paths, task_folder=folder)


def _parts(frames: FramedSocket[ToTaskMessage], key: str) -> Iterator[bytes]:
    while True:
        part = frames.receive()
        if not isinstance(part, FilePart):
            raise JobNotSentError(f"the driver has not sent the shipped file {key}: its run has ended")
        yield part.data
        if part.last:
            return


def scratch_folder() -> str | None:
    """The folder in which Spark's executor keeps what goes with it; None = that of temporary files."""
    return next(filter(os.path.isdir, executor_folders()[:1]), None)


def tls_context(identity: PemIdentity, side: int) -> ssl.SSLContext:
    """Both ends must show a certificate of the run's own authority; the client also asks for the driver's name."""
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    if side == ssl.PROTOCOL_TLS_SERVER:
        # A task that only sends never reads tickets. With unread bytes its close would be a reset, which would take
        # what is still on its way.
        context.num_tickets = 0
    context.load_verify_locations(cadata=identity.ca_certificate.decode())
    load_pair(context, identity.certificate, identity.private_key)
    return context
