"""The content of a YARN container for its process: description, secrets, host and log folder.

Owner: the main thread at the start of a process; blocking. Secrets are tightened to mode 0600 before they are read,
since YARN localizes files with modes of its own. A file that others may read and that cannot be tightened is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import high_availability
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import (
    ApplicationDescription,
    ContainerSecrets,
    MasterSecrets,
)
from yarrow.runtime.yarn.layout import DESCRIPTION_FILE

Secrets = TypeVar("Secrets", MasterSecrets, ContainerSecrets)

#: `container_e01_1700000000000_0001_02_000003`: epoch (where there is one), cluster, application, attempt, number.
_CONTAINER_ID = re.compile(r"container_(?:e\d+_)?(\d+_\d+)_(\d+)_\d+")
_READABLE_BY_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class ContainerFolderError(YarrowError):
    """A container lacks a part that every container of an application has, or the part cannot be used."""


@dataclass(frozen=True, slots=True)
class ContainerFolder:
    """The container of a process."""

    path: Path
    application_id: str
    container_id: str
    #: Number of the application's attempt, from 1.
    attempt: int
    #: Name or address by which others reach this node.
    host: str
    log_directory: Path

    @staticmethod
    def of(environment: Mapping[str, str]) -> ContainerFolder:
        """Read the settings of the NodeManager; ContainerFolderError names the missing one."""
        container_id = environment.get("CONTAINER_ID", "")
        match = _CONTAINER_ID.fullmatch(container_id)
        if match is None:
            raise ContainerFolderError(
                f"CONTAINER_ID is {container_id!r}, which is no container's id: this process is started by YARN"
            )
        logs = environment.get("LOG_DIRS", "").split(",")[0]
        return ContainerFolder(
            path=Path.cwd(),
            application_id=f"application_{match[1]}",
            container_id=container_id,
            attempt=int(match[2]),
            host=environment.get("NM_HOST") or socket.getfqdn(),
            log_directory=Path(logs) if logs else Path.cwd(),
        )


def request_of(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The variables that the requesting ResourceManager set for a container.

    Raises ContainerFolderError with those that are missing.
    """
    values = {name: environment.get(name, "") for name in names}
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise ContainerFolderError(
            f"the environment has no {', '.join(missing)}. The ResourceManager of an application on YARN starts this"
            " process in a container: do not start it by hand"
        )
    return values


def read_description(folder: Path) -> ApplicationDescription:
    """The application's description; ContainerFolderError when it is missing or of another version."""
    return _decode(folder / DESCRIPTION_FILE, msgspec.json.Decoder(ApplicationDescription))


def read_secrets(path: Path, kind: type[Secrets]) -> Secrets:
    """Secrets from a file that nobody else may read; ContainerFolderError says why it cannot be used."""
    # The mode afterwards counts.
    with contextlib.suppress(OSError):
        os.chmod(path, 0o600)
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ContainerFolderError(f"{path.name} cannot be read: {error}") from None
    if mode & _READABLE_BY_OTHERS:
        raise ContainerFolderError(
            f"{path.name} may be read by others (mode {stat.S_IMODE(mode):04o}) and cannot be tightened. The"
            " folders of the NodeManager must be on a file system that keeps modes, and belong to the"
            " container's user"
        )
    return _decode(path, msgspec.msgpack.Decoder(kind))


def configuration_of(
    description: ApplicationDescription, sensitive: Mapping[str, str], application_id: str
) -> Settings:
    """The application's whole configuration; the application's id is its cluster id unless another is set."""
    config = Settings(description.configuration, "the application's configuration")
    config = config.overlay(Settings(dict(sensitive), "the application's secrets"))
    if config.is_set(high_availability.CLUSTER_ID):
        return config
    return config.with_value(high_availability.CLUSTER_ID, application_id)


def read_container(folder: ContainerFolder, secrets_file: str) -> tuple[ContainerSecrets, Settings]:
    """The secrets of a process that the application's master has asked for, and its configuration.

    Raises ContainerFolderError for a file that is missing or cannot be used.
    """
    secrets = read_secrets(folder.path / secrets_file, ContainerSecrets)
    description = read_description(folder.path)
    return secrets, configuration_of(description, secrets.sensitive_configuration, folder.application_id)


_T = TypeVar("_T")


def _decode(path: Path, decoder: msgspec.json.Decoder[_T] | msgspec.msgpack.Decoder[_T]) -> _T:
    try:
        return decoder.decode(path.read_bytes())
    except OSError as error:
        raise ContainerFolderError(
            f"the container's folder has no {path.name} ({error.strerror}): applications are started by `yarrow`"
        ) from None
    except msgspec.DecodeError as error:
        # The text names fields and types, never values.
        raise ContainerFolderError(
            f"{path.name} is not of this version of Yarrow: {error}. Client and containers need the same version"
        ) from None
