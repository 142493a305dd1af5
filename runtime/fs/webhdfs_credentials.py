"""The identity of requests to WebHDFS: a user's name without security, else a delegation token.

Owner: any thread. A token comes from the file that YARN gives to a container (read again when it changes),
else from a Kerberos login of this process. A login's token is kept, and replaced before it would have to be
renewed. No text contains tokens.
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.hadoop_login import fetch_token
from yarrow.runtime.fs.hadoop_tokens import (
    HDFS_KIND,
    TOKEN_FILE_VARIABLE,
    WEB_KINDS,
    HadoopToken,
    TokenFileError,
    read_tokens,
    services_of,
    token_file,
    token_for,
)
from yarrow.runtime.fs.hdfs_settings import (
    configuration_folder,
    hadoop_configuration,
    hdfs_settings,
    http_addresses,
)

_RPC_PORT: Final = 8020
_DAY_MS: Final = 86_400_000
_RENEW_KEY: Final = "dfs.namenode.delegation.token.renew-interval"
#: Part of the time until a token must be renewed, after which another is fetched.
_FRESH: Final = 0.75
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class Credentials:
    """The identity for one HDFS: a user's name or a token."""

    user: str = ""
    #: The text that WebHDFS takes as `delegation`.
    token: str = field(default="", repr=False)


def is_secured(properties: Mapping[str, str]) -> bool:
    """Whether Hadoop's configuration asks for Kerberos."""
    return properties.get("hadoop.security.authentication", "simple").lower() == "kerberos"


def unrenewed_life_ms(token: HadoopToken, properties: Mapping[str, str], now_ms: int) -> int:
    """Milliseconds for which HDFS takes a token that it has just issued and that nobody renews."""
    configured = properties.get(_RENEW_KEY, "")
    interval = int(configured) if configured.isdecimal() else _DAY_MS
    end = token.end_ms()
    return min(interval, interval if end is None else end - now_ms)


def hdfs_services(url: str, properties: Mapping[str, str]) -> Sequence[str]:
    """The names that a token for the HDFS of a URL may call its service. Asks the name service.

    A URL without an address means the HDFS of fs.defaultFS.
    """
    address = _address_of(url, properties)
    if _is_logical(address, properties):
        return (f"ha-hdfs:{address.netloc}",)
    return services_of(address.hostname or "", address.port or _RPC_PORT)


def _address_of(url: str, properties: Mapping[str, str]) -> SplitResult:
    address = urlsplit(url)
    return address if address.netloc else urlsplit(properties.get("fs.defaultFS", ""))


def _is_logical(address: SplitResult, properties: Mapping[str, str]) -> bool:
    """Whether an address is the name of NameNodes that replace each other."""
    return bool(properties.get(f"dfs.ha.namenodes.{address.netloc}"))


class HdfsAuthority:
    """Gives the credentials for one HDFS, named by `hdfs://...` without a path."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._properties = hadoop_configuration()
        self._lock = threading.Lock()
        #: Path and time of change of the file whose token is kept.
        self._read: tuple[Path, int] | None = None
        self._given: str | None = None
        self._fetched = ""
        self._fetch_again_ms = 0

    def credentials(self) -> Credentials:
        """For the next request. Raises HadoopLoginError, FileSystemError where there are none."""
        if not is_secured(self._properties):
            return Credentials(user=os.environ.get("HADOOP_USER_NAME") or getpass.getuser())
        with self._lock:
            return Credentials(token=self._token_of_file() or self._token_of_login())

    def _token_of_file(self) -> str | None:
        path = token_file()
        if path is None:
            return None
        try:
            mark = (path, path.stat().st_mtime_ns)
            if mark != self._read:
                token = token_for(read_tokens(path), self._kinds(), self._services())
                self._read, self._given = mark, None if token is None else token.url_text()
        except (OSError, TokenFileError) as error:
            raise FileSystemError(f"{TOKEN_FILE_VARIABLE} names {path}: {error}") from None
        return self._given

    def _token_of_login(self) -> str:
        now = _clock.epoch_ms()
        if not self._fetched or now >= self._fetch_again_ms:
            if token_file() is not None and os.environ.get("CONTAINER_ID"):
                raise FileSystemError(
                    f"{self._prefix} asks for Kerberos, and this container has no token for it. Name the file"
                    " system in security.kerberos.access.hadoopFileSystems, as hdfs://host:port, when you"
                    " start the application"
                )
            token = fetch_token(self._prefix, hdfs_settings().login, configuration_folder())
            life = unrenewed_life_ms(token, self._properties, now)
            self._fetched, self._fetch_again_ms = token.url_text(), now + int(_FRESH * life)
        return self._fetched

    def _kinds(self) -> Sequence[str]:
        return WEB_KINDS if urlsplit(self._prefix).scheme == "webhdfs" else (HDFS_KIND, *WEB_KINDS)

    def _services(self) -> Sequence[str]:
        services = list(hdfs_services(self._prefix, self._properties))
        if _is_logical(_address_of(self._prefix, self._properties), self._properties):
            return services
        for web in http_addresses(f"{self._prefix}/", self._properties):
            found = urlsplit(web)
            services += services_of(found.hostname or "", found.port or 0)
        return services
