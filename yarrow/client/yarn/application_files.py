"""What a client keeps on its own machine of applications: the properties file, and the secrets of each application.

Owner: client processes, several at once; blocking. Files are written beside their place and renamed over it,
so that a reader never sees half of one. Only a plain file of this user with a proper mode is read, because
anybody may put files into a shared temporary folder.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.gateways import YarnError

_SECRETS_PREFIX: Final = ".yarrow-application-"
_APPLICATION_ID: Final = re.compile(r"application_\d+_\d+")
_BY_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
#: Most bytes of either file; a longer one is not ours.
_MAX_BYTES: Final = 1 << 20
_BETWEEN_PROPERTIES: Final = "@@"


@dataclass(frozen=True, slots=True)
class SessionProperties:
    """The session for a plain `run`."""

    application_id: str
    #: Settings from its start; the jobs' own settings override them.
    dynamic_properties: Mapping[str, str] = field(default_factory=dict)


class ApplicationFiles:
    """The files of one user in one folder."""

    def __init__(self, folder: Path, user: str) -> None:
        self.folder = folder
        self._properties = folder / f".yarrow-properties-{user}"

    @staticmethod
    def of(config: Settings) -> ApplicationFiles:
        """The folder that yarn.properties-file.location names, else that of temporary files."""
        return ApplicationFiles(
            Path(config.get(yarn.PROPERTIES_FILE_LOCATION) or tempfile.gettempdir()), getpass.getuser()
        )

    @property
    def properties_path(self) -> Path:
        """Where the properties file is, or would be."""
        return self._properties

    def read_properties(self) -> SessionProperties | None:
        """The session of the properties file; None if there is no such file.

        Raises YarnError for another user's file, a link, or a foreign file.
        """
        text = self._read(self._properties, _WRITABLE_BY_OTHERS)
        if text is None:
            return None
        pairs = dict(_pairs(text.decode(errors="replace").splitlines()))
        application_id = pairs.get("applicationID", "")
        if not _APPLICATION_ID.fullmatch(application_id):
            raise YarnError(
                f"{self._properties} names no application (applicationID={application_id!r}): remove it, or"
                " name the session by -yid or -Dyarn.application.id."
            )
        dynamic = [
            one.partition("=") for one in pairs.get("dynamicPropertiesString", "").split(_BETWEEN_PROPERTIES)
        ]
        return SessionProperties(
            application_id, {key: value for key, separator, value in dynamic if separator}
        )

    def write_properties(self, session: SessionProperties) -> Path:
        """Makes `session` the one for a plain `run`; returns the file's path."""
        dynamic = _BETWEEN_PROPERTIES.join(
            f"{key}={value}" for key, value in session.dynamic_properties.items()
        )
        text = (
            "# The YARN session that `yarrow run` uses when none is named.\n"
            f"applicationID={session.application_id}\n"
            f"dynamicPropertiesString={_escaped(dynamic)}\n"
        )
        self._write(self._properties, text.encode())
        return self._properties

    def remove_properties(self, application_id: str) -> None:
        """Removes the properties file if it names this application."""
        with contextlib.suppress(YarnError):
            session = self.read_properties()
            if session is not None and session.application_id == application_id:
                self._properties.unlink(missing_ok=True)

    def read_secrets(self, application_id: str) -> ClientSecrets | None:
        """The secrets of an application; None if this user has none of it here.

        Raises YarnError for a file that others may read, another user's file, a link, or another version.
        """
        path = self._secrets_path(application_id)
        data = self._read(path, _BY_OTHERS)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=ClientSecrets)
        except msgspec.DecodeError:
            # The message does not contain its content.
            raise YarnError(
                f"{path} is not of this version of Yarrow: use the version that started {application_id}."
            ) from None

    def write_secrets(self, secrets: ClientSecrets) -> Path:
        """Writes the secrets of an application with mode 0600; returns the file's path."""
        path = self._secrets_path(secrets.application_id)
        self._write(path, msgspec.json.encode(secrets))
        return path

    def forget(self, application_id: str) -> None:
        """Removes the files of an ended application."""
        self.remove_properties(application_id)
        self._secrets_path(application_id).unlink(missing_ok=True)

    def forget_ended(self, has_ended: Callable[[str], bool]) -> None:
        """Removes secrets of ended applications, except that of the properties file, whose user must be told."""
        with contextlib.suppress(YarnError):
            session = self.read_properties()
            named = "" if session is None else session.application_id
            for application_id in self.known_applications():
                if application_id != named and has_ended(application_id):
                    self._secrets_path(application_id).unlink(missing_ok=True)

    def known_applications(self) -> Sequence[str]:
        """Ids of this user's applications with secrets here; the folder may also hold other users' secrets."""
        own = [path.name for path in self.folder.glob(f"{_SECRETS_PREFIX}*") if _is_own(path)]
        names = [name.removeprefix(_SECRETS_PREFIX) for name in own]
        return sorted(name for name in names if _APPLICATION_ID.fullmatch(name))

    def _secrets_path(self, application_id: str) -> Path:
        if not _APPLICATION_ID.fullmatch(application_id):
            raise YarnError(
                f"{application_id!r} is no application's id: one looks like application_1700000000000_0001."
            )
        return self.folder / f"{_SECRETS_PREFIX}{application_id}"

    def _read(self, path: Path, forbidden: int) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise YarnError(f"{path} cannot be read: {error.strerror}.") from None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            _check_own(path, status, forbidden)
            return file.read(_MAX_BYTES)

    def _write(self, path: Path, data: bytes) -> None:
        """Replaces the path by a new file of mode 0600; a link is replaced, not followed."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise YarnError(
                f"{self.folder} cannot be written: {error.strerror}. yarn.properties-file.location names the"
                " folder."
            ) from None
        try:
            replace_whole(path, data)
        except OSError as error:
            raise YarnError(
                f"{path} cannot be written: {error.strerror}. yarn.properties-file.location names the folder."
            ) from None


def _is_own(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def _check_own(path: Path, status: os.stat_result, forbidden: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise YarnError(f"{path} is no plain file: remove it.")
    if status.st_uid != os.geteuid():
        raise YarnError(
            f"{path} belongs to another user (uid {status.st_uid}) and is not used: set"
            " yarn.properties-file.location to a folder of your own."
        )
    if status.st_mode & forbidden:
        raise YarnError(
            f"{path} is open to others (mode {stat.S_IMODE(status.st_mode):04o}) and is not used: `chmod 600`"
            " it if its content is yours, or remove it."
        )


def _pairs(lines: Sequence[str]) -> Sequence[tuple[str, str]]:
    found = []
    for line in lines:
        if line.strip() and not line.lstrip().startswith(("#", "!")):
            key, separator, value = line.partition("=")
            if separator:
                found.append((key.strip(), _unescaped(value.strip())))
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text)
