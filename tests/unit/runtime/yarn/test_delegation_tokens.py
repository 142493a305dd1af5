"""When the tokens of a container end, read from files in Hadoop's form."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.cli.job_commands import application_lines
from yarrow.client.yarn.yarn_client import _keytab
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.delegation_tokens import (
    TOKEN_FILE,
    TokenFileError,
    TokenLife,
    log_token_life,
    sentence,
    token_lives,
    tokens_end,
)
from yarrow.runtime.yarn.gateways import YarnError

DAY = 86_400_000
ENDS = 1_800_000_000_000


def number(value: int) -> bytes:
    """A long as Hadoop's WritableUtils.writeVLong writes it."""
    if -112 <= value <= 127:
        return value.to_bytes(1, "big", signed=True)
    mark, rest = (-120, ~value) if value < 0 else (-112, value)
    size = (rest.bit_length() + 7) // 8
    return (mark - size).to_bytes(1, "big", signed=True) + rest.to_bytes(size, "big")


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def token(kind: str, service: str, identifier: bytes) -> bytes:
    password = b"p" * 20
    return (
        text(service)
        + number(len(identifier))
        + identifier
        + number(len(password))
        + password
        + text(kind)
        + text(service)
    )


def identifier(ends_ms: int) -> bytes:
    names = text("alice") + text("yarn") + text("")
    return b"\0" + names + number(ends_ms - 7 * DAY) + number(ends_ms) + number(12) + number(3)


def file_of(path: Path, *tokens: bytes) -> Path:
    path.write_bytes(b"HDTS\0" + number(len(tokens)) + b"".join(tokens) + number(0))
    return path


def test_the_first_end_counts_and_tokens_without_one_do_not(tmp_path: Path) -> None:
    path = file_of(
        tmp_path / "tokens",
        token("YARN_AM_RM_TOKEN", "10.0.0.1:8030", b"\x0a\x05whatever"),
        token("HDFS_DELEGATION_TOKEN", "ha-hdfs:one", identifier(ENDS)),
        token("HDFS_DELEGATION_TOKEN", "10.0.0.2:8020", identifier(ENDS - DAY)),
    )
    lives = token_lives(path)
    assert lives == [
        TokenLife("HDFS_DELEGATION_TOKEN", "ha-hdfs:one", ENDS),
        TokenLife("HDFS_DELEGATION_TOKEN", "10.0.0.2:8020", ENDS - DAY),
    ]
    said = sentence(lives, ENDS - 4 * DAY)
    assert "10.0.0.2:8020 ends in 3.0 days" in said
    assert sentence([], 0) == ""


@pytest.mark.parametrize("content", [b"", b"HDTS", b"HDTS\1\5", b"PK\3\4", b"HDTS\0\5", b"HDTS\0\1\x7f"])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    with pytest.raises(TokenFileError):
        token_lives(path)


def test_the_master_says_when_its_tokens_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log_token_life({}, ENDS)
    unsecured = file_of(tmp_path / "unsecured", token("YARN_AM_RM_TOKEN", "10.0.0.1:8030", b"x"))
    log_token_life({TOKEN_FILE: str(unsecured)}, ENDS)
    assert not caplog.records
    secured = file_of(tmp_path / "secured", token("HDFS_DELEGATION_TOKEN", "nn:8020", identifier(ENDS)))
    log_token_life({TOKEN_FILE: str(secured)}, ENDS - DAY)
    assert "HDFS_DELEGATION_TOKEN for nn:8020 ends in" in caplog.text
    log_token_life({TOKEN_FILE: str(tmp_path / "none")}, ENDS)
    assert "cannot be read" in caplog.text


def test_a_login_that_is_not_possible_is_refused(tmp_path: Path) -> None:
    keys = "security.kerberos.login."
    assert _keytab(Settings({}), True) is None
    assert _keytab(Settings({f"{keys}use-ticket-cache": "false"}), False) is None
    keytab = tmp_path / "me.keytab"
    keytab.write_bytes(b"")
    both = Settings({f"{keys}keytab": str(keytab), f"{keys}principal": "me@EXAMPLE"})
    assert _keytab(both, True) == (str(keytab), "me@EXAMPLE")
    for values, message in (
        ({"use-ticket-cache": "false"}, "use-ticket-cache is false"),
        ({"keytab": str(keytab)}, "set together"),
        ({"keytab": "/nowhere", "principal": "me"}, "no such file"),
    ):
        with pytest.raises(YarnError, match=message):
            _keytab(Settings({f"{keys}{key}": value for key, value in values.items()}), True)


def test_the_end_of_the_first_token_is_told_until_it_has_come(tmp_path: Path) -> None:
    one, other = identifier(ENDS), identifier(ENDS - DAY)
    kind = "HDFS_DELEGATION_TOKEN"
    path = file_of(tmp_path / "tokens", token(kind, "a:8020", one), token(kind, "b:8020", other))
    assert tokens_end({TOKEN_FILE: str(path)}) == ENDS - DAY
    assert tokens_end({}) == tokens_end({TOKEN_FILE: str(tmp_path / "none")}) == 0

    overview = {"yarn-attempt": 1, "yarn-max-attempts": 2, "yarn-tokens-end": ENDS}
    attempt, tokens = application_lines(overview, ManualClock(ENDS - 3 * DAY))
    assert attempt == "Attempt 1 of 2 of the application."
    assert tokens.startswith("Its delegation token ends in 3.0 days, and the application has no newer one.")
    # The master may still be repeating a renewal that has failed: REST tells the end then, too.
    assert "nothing renews it" not in tokens
    assert "ends in 12.0 hours" in application_lines(overview, ManualClock(ENDS - DAY // 2))[1]
    assert "has ended: " in application_lines(overview, ManualClock(ENDS))[1]
    assert application_lines({"yarn-tokens-end": 0}, ManualClock(ENDS)) == []
