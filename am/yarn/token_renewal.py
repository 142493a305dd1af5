"""TokenRenewal: gets new delegation tokens of HDFS by the keytab, before those of the application end.

Owner: the event loop of the ApplicationMaster. Logins run in threads of their own, since a JVM takes seconds. A failed
renewal is told and repeated, and never ends a job: the present tokens last until their end. No text here names a token.
Source of the times: Flink's security.delegation.tokens.renewal.*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
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
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, HadoopToken, TokenFileError, read_tokens, token_file
from yarrow.runtime.fs.hdfs_settings import configuration_folder, hadoop_configuration
from yarrow.runtime.fs.token_files import take_tokens, written_tokens
from yarrow.runtime.fs.webhdfs_credentials import is_secured, unrenewed_life_ms
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.runtime.rpc.messages import DelegationTokens
from yarrow.runtime.yarn.delegation_tokens import log_token_life

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


class TokenRenewalError(YarrowError):
    """Some file systems gave no token; the message names each of them with the reason."""


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
    """The settings of a renewal of delegation tokens."""

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
        #: The newest token of each file system that gave one: a new process gets all of them.
        self._tokens: dict[str, HadoopToken] = {}
        # Which token of the submission belongs to which URL is not known: the first one stands for each of them.
        submitted = first_span(_spans_of_submission(), settings.ratio)
        self._spans = dict.fromkeys(settings.file_systems, submitted)

    @property
    def ends_ms(self) -> int:
        """When the application loses its tokens, in epoch milliseconds; 0 = they are renewed in time."""
        span = self._span
        return span.end_ms if self._has_failed and span is not None else 0

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

    @property
    def _span(self) -> TokenSpan | None:
        """The span that is to be replaced first; None if a file system has no token yet."""
        known = [span for span in self._spans.values() if span is not None]
        return first_span(known, self._settings.ratio) if len(known) == len(self._spans) else None

    def _due_ms(self) -> int:
        return self._due_ms_of(self._span)

    def _due_ms_of(self, span: TokenSpan | None) -> int:
        return 0 if span is None else span.due_ms(self._settings.ratio)

    async def _renew_patiently(self) -> None:
        longest = self._settings.backoff_seconds
        # There is no deadline: behind the end of the tokens nothing else helps either.
        pauses = RetryPauses(math.inf, min(_FIRST_PAUSE_SECONDS, longest), longest, self._clock)
        while not await self._try():
            pause = pauses.next_seconds()
            assert pause is not None, "without a deadline there is always another attempt"
            _log.warning("the next attempt to renew the delegation tokens is in %.0f s", pause)
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
        span = self._span
        left = 0.0 if span is None else (span.end_ms - self._clock.epoch_ms()) / 1000
        return f"the present ones last for {left:.0f} s" if left > 0 else "the present ones have ended"

    async def _renew(self) -> None:
        """Replaces the tokens that are due. Raises TokenRenewalError, after it has handed out those that it got."""
        now = self._clock.epoch_ms()
        fresh: dict[str, HadoopToken] = {}
        failures: list[str] = []
        for url in [url for url, span in self._spans.items() if self._due_ms_of(span) <= now]:
            try:
                fresh[url] = await in_daemon_thread(partial(self._fetch, url))
            except YarrowError as error:
                failures.append(f"{url}: {error}")
            except Exception as error:
                _log.exception("the login for a token of %s failed", url)
                failures.append(f"{url}: {type(error).__name__}")
        if fresh:
            await self._take(fresh, now)
        if failures:
            raise TokenRenewalError("; ".join(failures))

    async def _take(self, fresh: Mapping[str, HadoopToken], now: int) -> None:
        tokens = {**self._tokens, **fresh}
        content = written_tokens(list(tokens.values()))
        await asyncio.to_thread(take_tokens, content)
        self._tokens = tokens
        for url, token in fresh.items():
            life = unrenewed_life_ms(token, self._settings.hadoop, now)
            self._spans[url] = TokenSpan(now, now + life)
        self._number += 1
        self._hand_out(DelegationTokens(number=self._number, content=content))
        _log.info(
            "new delegation tokens for %s; the next ones in %.0f s",
            ", ".join(fresh),
            max(0.0, (self._due_ms() - now) / 1000),
        )


def _spans_of_submission() -> Sequence[TokenSpan]:
    """The lives of the container's tokens for HDFS, which YARN renews until their end.

    There are none if the file cannot be read. The renewal then asks for tokens at once.
    """
    path = token_file()
    try:
        tokens = () if path is None else read_tokens(path)
    except (OSError, TokenFileError) as error:
        _log.warning("the lifetime of Hadoop's tokens cannot be read: %s", error)
        return ()
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
    Without a renewal the log tells how long the tokens of the submission last.
    """
    renewal = _renewal_of(config, keytab, folder, hand_out, clock)
    if renewal is None:
        log_token_life(os.environ, clock.epoch_ms())
    return renewal


def _renewal_of(
    config: Settings,
    keytab: bytes,
    folder: Path,
    hand_out: Callable[[DelegationTokens], None],
    clock: Clock,
) -> TokenRenewal | None:
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
        _log.warning(
            "the delegation tokens are not renewed: neither fs.defaultFS nor %s names an HDFS",
            security.KERBEROS_FILE_SYSTEMS.key,
        )
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
    """The class path of Skein's process, an ancestor of this one, which has Hadoop's classes; "" = there is none."""
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
