"""When delegation tokens are renewed, what follows a failure, and who gets the new ones. A clock that a test moves."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.runtime.fs.test_hadoop_tokens import counted, number, writable
from yarrow.am.yarn.token_renewal import RenewalSettings, TokenRenewal, TokenSpan, first_span, renewal_of
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_login import HadoopLoginError
from yarrow.runtime.fs.hadoop_tokens import (
    HDFS_KIND,
    TOKEN_FILE_VARIABLE,
    HadoopToken,
    parse_tokens,
    read_tokens,
)
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.rpc.messages import DelegationTokens

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
START_MS = 1_800_000_000_000
SERVICE = "one:8020"
URL = f"hdfs://{SERVICE}"
#: The properties of Hadoop, with a renewal twice a day.
RENEWED_TWICE_A_DAY = {"dfs.namenode.delegation.token.renew-interval": str(DAY_MS // 2)}


def token(issued_ms: int, end_ms: int, password: bytes, service: str = SERVICE) -> HadoopToken:
    names = counted(b"alice") + counted(b"yarn") + counted(b"")
    identifier = b"\0" + names + number(issued_ms) + number(end_ms) + number(12) + number(3)
    return HadoopToken(HDFS_KIND, service, identifier, password)


class Logins:
    """A KDC and a NameNode that are there, or not, and the times at which they were asked."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked_hours: list[float] = []
        #: Attempts that fail before the next one succeeds.
        self.failures = 0
        #: A file system that cannot be reached.
        self.away = ""

    def fetch(self, url: str) -> HadoopToken:
        now = self.clock.epoch_ms()
        if url == self.away:
            raise HadoopLoginError("the NameNode is away")
        self.asked_hours.append(round((now - START_MS) / HOUR_MS, 1))
        if self.failures:
            self.failures -= 1
            raise HadoopLoginError("the KDC is away")
        password = f"password {len(self.asked_hours)}".encode()
        return token(now, now + 7 * DAY_MS, password, url.removeprefix("hdfs://"))


class Application:
    """An attempt of an application with the tokens of its submission."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        started_hours_ago: float = 0.0,
        urls: tuple[str, ...] = (URL,),
    ) -> None:
        issued_ms = START_MS - int(started_hours_ago * HOUR_MS)
        self.path = folder / "container_tokens"
        self.path.write_bytes(writable([token(issued_ms, issued_ms + 7 * DAY_MS, b"of the submission")]))
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(self.path))
        self.clock = ManualClock(START_MS)
        self.logins = Logins(self.clock)
        self.handed_out: list[DelegationTokens] = []
        self.slept_seconds = 0.0
        settings = RenewalSettings(urls, ratio=0.75, backoff_seconds=3600.0, hadoop=RENEWED_TWICE_A_DAY)
        self.renewal = TokenRenewal(
            settings, self.logins.fetch, self.handed_out.append, self.clock, self._sleep
        )

    async def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def run_until(self, condition: Callable[[], bool]) -> None:
        async def run() -> None:
            await self.renewal.start()
            work = asyncio.create_task(self.renewal.run())
            while not condition():
                assert not work.done()
                await asyncio.sleep(0)
            work.cancel()

        asyncio.run(run())

    @property
    def password(self) -> bytes:
        """That of the process's own token."""
        return read_tokens(self.path)[0].password


def test_tokens_are_replaced_at_a_part_of_their_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    application = Application(tmp_path, monkeypatch)
    application.run_until(lambda: len(application.handed_out) == 3)
    # YARN renews those of the submission for seven days. Nobody renews the others, which last twelve hours.
    assert application.logins.asked_hours == [126.0, 135.0, 144.0]
    assert [tokens.number for tokens in application.handed_out] == [1, 2, 3]
    assert application.password == b"password 3"
    assert application.renewal.ends_ms == 0
    for tokens in application.handed_out:
        assert "password" not in repr(tokens)


def test_an_attempt_whose_tokens_have_ended_gets_new_ones_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(tmp_path, monkeypatch, started_hours_ago=8 * 24)
    asyncio.run(application.renewal.start())
    assert application.logins.asked_hours == [0.0]
    assert application.password == b"password 1"


def test_a_first_attempt_that_fails_behind_the_end_of_the_tokens_is_repeated_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application(tmp_path, monkeypatch, started_hours_ago=8 * 24)
    # That of the start, and the first one behind it.
    application.logins.failures = 2
    with caplog.at_level(logging.WARNING):
        application.run_until(lambda: bool(application.handed_out))
    assert application.logins.asked_hours == [0.0, 0.0, 0.0], (
        "a pause of some seconds, not the longest of an hour"
    )
    assert "the next attempt to renew the delegation tokens is in" in caplog.text


OTHER_SERVICE = "two:8020"


def test_a_file_system_that_is_away_keeps_no_other_from_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"hdfs://{OTHER_SERVICE}"
    application = Application(tmp_path, monkeypatch, started_hours_ago=130, urls=(URL, other))
    logins, end_ms = application.logins, START_MS + (7 * 24 - 130) * HOUR_MS
    logins.away = URL
    with caplog.at_level(logging.WARNING):
        asyncio.run(application.renewal.start())
    assert services(application.handed_out[-1]) == {OTHER_SERVICE}
    assert f"{URL}: the NameNode is away" in caplog.text
    # The one that failed has the token of the submission.
    assert application.renewal.ends_ms == end_ms
    assert len(logins.asked_hours) == 1

    logins.away = ""
    asyncio.run(application.renewal.start())
    assert len(logins.asked_hours) == 2, "the other token is not due"
    # A process that starts now gets both.
    assert services(application.handed_out[-1]) == {SERVICE, OTHER_SERVICE}
    assert {each.service for each in read_tokens(application.path)} == {SERVICE, OTHER_SERVICE}
    assert application.renewal.ends_ms == 0


def services(tokens: DelegationTokens) -> set[str]:
    return {each.service for each in parse_tokens(tokens.content)}


def test_a_token_file_that_cannot_be_read_does_not_end_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"no tokens")
    settings = RenewalSettings((URL,), ratio=0.75, backoff_seconds=3600.0, hadoop={})
    clock = ManualClock(START_MS)
    for named in (path, tmp_path / "none"):
        caplog.clear()
        monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(named))
        renewal = TokenRenewal(settings, Logins(clock).fetch, lambda tokens: None, clock)
        assert "the lifetime of Hadoop's tokens cannot be read" in caplog.text
        assert renewal.ends_ms == 0


def test_a_failure_is_told_and_repeated_while_the_present_tokens_last_and_behind_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application(tmp_path, monkeypatch)
    application.logins.failures = 100
    ends = []

    def has_renewed() -> bool:
        if len(application.logins.asked_hours) == 2:
            ends.append(application.renewal.ends_ms)
        return bool(application.handed_out)

    with caplog.at_level(logging.WARNING):
        application.run_until(has_renewed)
    hours = application.logins.asked_hours
    assert hours[0] == 126.0
    assert hours[-1] > 7 * 24, "it went on behind their end"
    assert all(0 <= later - earlier <= 1.1 for earlier, later in itertools.pairwise(hours))
    # REST says until when the application can work, as long as that is in doubt.
    assert ends and set(ends) == {START_MS + 7 * DAY_MS}
    assert application.renewal.ends_ms == 0
    assert "the present ones last for" in caplog.text
    assert "the present ones have ended" in caplog.text
    assert "the KDC is away" in caplog.text


def test_the_token_that_is_due_first_decides() -> None:
    assert first_span([], 0.5) is None
    early, late = TokenSpan(0, 100), TokenSpan(10, 1000)
    assert first_span([late, early], 0.5) == early
    assert early.due_ms(0.75) == 75


KERBEROS = """<configuration>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
<property><name>fs.defaultFS</name><value>hdfs://one:8020/</value></property>
</configuration>"""


@pytest.mark.parametrize(
    ("settings", "keytab", "renews"),
    [
        ({}, b"keys", True),
        ({}, b"", False),
        ({"security.delegation.tokens.enabled": "false"}, b"keys", False),
        ({"security.ssl.internal.enabled": "false"}, b"keys", False),
        ({"yarn.security.kerberos.localized-keytab-path": "/nodes/keytab"}, b"", False),
        (
            {
                "yarn.security.kerberos.localized-keytab-path": "/nodes/keytab",
                "yarn.security.kerberos.ship-local-keytab": "false",
            },
            b"",
            True,
        ),
    ],
)
def test_who_has_a_keytab_renews(
    settings: dict[str, str],
    keytab: bytes,
    renews: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = renewal_in(tmp_path, monkeypatch, KERBEROS, settings, keytab)
    assert (made is not None) is renews
    # Whoever does not renew tells how long the tokens last, also with a keytab.
    assert (f"{HDFS_KIND} for {SERVICE} ends in 7.0 days" in caplog.text) is not renews
    written = tmp_path / "login.keytab"
    if made is not None and keytab:
        assert written.read_bytes() == keytab
        assert written.stat().st_mode & 0o777 == 0o600


def test_without_an_hdfs_the_log_tells_that_nothing_is_renewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = KERBEROS.replace("hdfs://one:8020/", "file:///")
    assert renewal_in(tmp_path, monkeypatch, elsewhere, {}, b"keys") is None
    assert "neither fs.defaultFS nor security.kerberos.access.hadoopFileSystems names an HDFS" in caplog.text
    assert "ends in 7.0 days" in caplog.text


def renewal_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, site: str, settings: dict[str, str], keytab: bytes
) -> TokenRenewal | None:
    """The renewal of an application whose tokens last for seven days, with Hadoop's properties in `site`."""
    (folder / "core-site.xml").write_text(site)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    path = folder / "container_tokens"
    path.write_bytes(writable([token(START_MS, START_MS + 7 * DAY_MS, b"of the submission")]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    former = use_hdfs_settings(HdfsSettings())
    config = Settings({"security.kerberos.login.principal": "alice@TEST", **settings})
    try:
        return renewal_of(config, keytab, folder, lambda tokens: None, ManualClock(START_MS))
    finally:
        use_hdfs_settings(former)
