"""TokenRenewal: gets new delegation tokens of HDFS by the keytab, before those of the application end.

Owner: the event loop of the ApplicationMaster. Logins run in threads of their own, since a JVM takes seconds. A failed
renewal is told and repeated, and never ends a job: the present tokens last until their end. No text here names a token.
Source of the times: Flink's security.delegation.tokens.renewal.*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast
from urllib.parse import urlsplit

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.process_exit import ancestors_to
from yarrow.runtime.common.retry_pauses import RetryPauses
from yarrow.runtime.config.options import security, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_login import HadoopLogin, fetch_token
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, HadoopToken, read_tokens, token_file
from yarrow.runtime.fs.hdfs_settings import configuration_folder, hadoop_configuration
from yarrow.runtime.fs.token_files import take_tokens, written_tokens
from yarrow.runtime.fs.webhdfs_credentials import is_secured, unrenewed_life_ms
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.rpc.messages import DelegationTokens

_log = logging.getLogger(__name__)
#: Seconds between two looks at the clock: a machine may sleep.
_LOOK_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 10.0
_KEYTAB_FILE: Final = "login.keytab"
#: The kernel's name of Skein's process.
SKEIN_PROCESS: Final = "java"
T = TypeVar("T")

#: Gets a token for the file system of a URL. Blocking. Raises FileSystemError.
FetchToken = Callable[[str], HadoopToken]


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The time in which HDFS takes a token, in epoch milliseconds."""

    start_ms: int
    end_ms: int

    def due_ms(self, ratio: float) -> int:
        """When a token of this span is to be replaced."""
        return self.start_ms + int(ratio * (self.end_ms - self.start_ms))


def first_span(spans: Sequence[TokenSpan], ratio: float) -> TokenSpan | None:
    """The span that is to be replaced first; None if there is none."""
    return min(spans, key=lambda span: span.due_ms(ratio), default=None)


@dataclass(frozen=True, slots=True)
class RenewalSettings:
    """What a renewal needs to know."""

    #: URLs without a path.
    file_systems: tuple[str, ...]
    #: Part of a token's life after which another is fetched.
    ratio: float
    #: Longest pause between two attempts.
    backoff_seconds: float
    #: Properties of Hadoop, for the time in which a token needs no renewal.
    hadoop: Mapping[str, str]


class TokenRenewal:
    """The delegation tokens of one attempt of an application."""

    def __init__(
        self,
        settings: RenewalSettings,
        fetch: FetchToken,
        hand_out: Callable[[DelegationTokens], None],
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`hand_out` takes new tokens for the processes of all other containers."""
        self._settings = settings
        self._fetch = fetch
        self._hand_out = hand_out
        self._clock = clock
        self._sleep = sleep
        self._number = 0
        self._has_failed = False
        self._span = first_span(_spans_of_submission(), settings.ratio)

    @property
    def ends_ms(self) -> int:
        """When the application loses its tokens, in epoch milliseconds; 0 = they are renewed in time."""
        return self._span.end_ms if self._has_failed and self._span is not None else 0

    async def start(self) -> None:
        """Renews tokens that are due already, as those of a later attempt may be. Tries it once."""
        if self._due_ms() <= self._clock.epoch_ms():
            await self._try()

    async def run(self) -> None:
        """Renews tokens until it is cancelled."""
        while True:
            while (left_ms := self._due_ms() - self._clock.epoch_ms()) > 0:
                await self._sleep(min(_LOOK_SECONDS, left_ms / 1000))
            await self._renew_patiently()

    def _due_ms(self) -> int:
        return 0 if self._span is None else self._span.due_ms(self._settings.ratio)

    async def _renew_patiently(self) -> None:
        longest = self._settings.backoff_seconds
        left = 0.0 if self._span is None else (self._span.end_ms - self._clock.epoch_ms()) / 1000
        pauses = RetryPauses(left, min(_FIRST_PAUSE_SECONDS, longest), longest, self._clock)
        while not await self._try():
            # Behind the end of the tokens nothing else helps either.
            pause = pauses.next_seconds() or min(longest, pauses.left_seconds or longest)
            _log.warning("the delegation tokens are renewed again in %.0f s", pause)
            await self._sleep(pause)

    async def _try(self) -> bool:
        try:
            await self._renew()
        except YarrowError as error:
            _log.warning("the delegation tokens were not renewed; %s: %s", self._what_is_left(), error)
        except Exception:
            _log.exception("the delegation tokens were not renewed; %s", self._what_is_left())
        else:
            self._has_failed = False
            return True
        self._has_failed = True
        return False

    def _what_is_left(self) -> str:
        left = 0.0 if self._span is None else (self._span.end_ms - self._clock.epoch_ms()) / 1000
        return f"the present ones last for {left:.0f} s" if left > 0 else "the present ones have ended"

    async def _renew(self) -> None:
        settings, now = self._settings, self._clock.epoch_ms()
        tokens = [await in_daemon_thread(partial(self._fetch, url)) for url in settings.file_systems]
        content = written_tokens(tokens)
        await asyncio.to_thread(take_tokens, content)
        lives = [unrenewed_life_ms(token, settings.hadoop, now) for token in tokens]
        self._span = first_span([TokenSpan(now, now + life) for life in lives], settings.ratio)
        self._number += 1
        self._hand_out(DelegationTokens(number=self._number, content=content))
        _log.info(
            "new delegation tokens for %s; the next ones in %.0f s",
            ", ".join(settings.file_systems),
            max(0.0, (self._due_ms() - now) / 1000),
        )


def _spans_of_submission() -> Sequence[TokenSpan]:
    """The lives of the container's tokens for HDFS, which YARN renews until their end.

    Raises OSError and TokenFileError if the file cannot be read.
    """
    path = token_file()
    tokens = () if path is None else read_tokens(path)
    spans = [(token.issued_ms(), token.end_ms()) for token in tokens if token.kind == HDFS_KIND]
    return [TokenSpan(issued, end) for issued, end in spans if issued is not None and end is not None]


def renewal_of(
    config: Settings,
    keytab: bytes,
    folder: Path,
    hand_out: Callable[[DelegationTokens], None],
    clock: Clock,
) -> TokenRenewal | None:
    """The renewal of an application's tokens; None if Hadoop asks for no Kerberos, or the application has no keytab.

    `keytab`: the content of the file that the client has sent, which is written into `folder`; empty = none was sent.
    """
    hadoop = hadoop_configuration()
    if not is_secured(hadoop) or not config.get(security.DELEGATION_TOKENS_ENABLED):
        return None
    login = HadoopLogin(_keytab_file(config, keytab, folder), config.get(security.KERBEROS_PRINCIPAL) or "")
    if not login.keytab or not login.principal:
        return None
    if not config.get(security.INTERNAL_ENABLED):
        _log.warning(
            "the delegation tokens are not renewed: %s is false, and others could read them on the network",
            security.INTERNAL_ENABLED.key,
        )
        return None
    settings = RenewalSettings(
        file_systems=_file_systems(config, hadoop),
        ratio=config.get(security.DELEGATION_TOKENS_TIME_RATIO),
        backoff_seconds=config.get(security.DELEGATION_TOKENS_RETRY_BACKOFF).seconds,
        hadoop=hadoop,
    )
    if not settings.file_systems:
        return None

    def fetch(url: str) -> HadoopToken:
        return fetch_token(url, login, configuration_folder(), _class_path())

    return TokenRenewal(settings, fetch, hand_out, clock)


def _keytab_file(config: Settings, keytab: bytes, folder: Path) -> str:
    """The path of the keytab on this machine; "" = there is none."""
    if not keytab:
        return (not config.get(yarn.SHIP_KEYTAB) and config.get(yarn.LOCALIZED_KEYTAB)) or ""
    path = folder / _KEYTAB_FILE
    replace_whole(path, keytab)
    return str(path)


def _class_path() -> str:
    """The class path of Skein's process in front of this one, which has Hadoop's classes; "" = there is none."""
    for pid in ancestors_to(SKEIN_PROCESS, os.getpid())[-1:]:
        with contextlib.suppress(OSError):
            variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            pairs = (variable.partition(b"=") for variable in variables)
            return next((os.fsdecode(value) for name, _, value in pairs if name == b"CLASSPATH"), "")
    return ""


def _file_systems(config: Settings, hadoop: Mapping[str, str]) -> tuple[str, ...]:
    """The HDFS that the application has tokens for: of fs.defaultFS, and those that the configuration names."""
    named = (hadoop.get("fs.defaultFS", ""), *(config.get(security.KERBEROS_FILE_SYSTEMS) or ()))
    addresses = [urlsplit(name) for name in named]
    return tuple(
        dict.fromkeys(f"hdfs://{each.netloc}" for each in addresses if each.scheme == "hdfs" and each.netloc)
    )


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """What a blocking call returns, or the error that it raises. The end of the process does not wait for the call."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(cast(T, result))

    def run() -> None:
        try:
            result, error = call(), None
        except Exception as raised:
            result, error = None, raised
        with contextlib.suppress(RuntimeError):  # the loop has closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="token login", daemon=True).start()
    return await outcome
