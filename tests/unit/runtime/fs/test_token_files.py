"""Token files that are written anew: what was read is written, and fresh tokens take the places of older ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given

from tests.unit.runtime.fs.test_hadoop_tokens import TOKENS, counted, number, protobuf, writable
from yarrow.runtime.fs import token_files
from yarrow.runtime.fs.hadoop_tokens import (
    HDFS_KIND,
    RM_KIND,
    TOKEN_FILE_VARIABLE,
    HadoopToken,
    TokenFileError,
    parse_tokens,
    read_tokens,
)
from yarrow.runtime.fs.token_files import take_tokens, take_tokens_or_tell, with_fresh, written_tokens
from yarrow.runtime.fs.whole_files import replace_whole


def token(service: str, password: bytes, kind: str = HDFS_KIND) -> HadoopToken:
    return HadoopToken(kind, service, b"an identifier", password, service)


OLD = [token("one:8020", b"old"), token("two:8020", b"old"), token("one:8020", b"old", RM_KIND)]
FRESH = [token("one:8020", b"fresh")]


@given(tokens=TOKENS)
def test_what_is_written_is_read_again(tokens: Sequence[HadoopToken]) -> None:
    read = parse_tokens(written_tokens(tokens))
    assert [(each.kind, each.service, each.identifier, each.password) for each in read] == [
        (each.kind, each.service, each.identifier, each.password) for each in tokens
    ]
    # Hadoop's own name of a token is its service.
    assert [each.alias for each in read] == [each.alias or each.service for each in tokens]
    assert parse_tokens(written_tokens(read)) == read


def test_a_fresh_token_replaces_that_of_its_service_and_kind_alone() -> None:
    assert with_fresh(OLD, FRESH) == [*FRESH, *OLD[1:]]
    assert with_fresh([], FRESH) == FRESH


def issued(at: int, service: str = "one:8020") -> HadoopToken:
    """A token whose identifier says when it was issued: version, three names, two dates."""
    identifier = bytes([0]) + counted(b"") * 3 + number(at) + number(100)
    return HadoopToken(HDFS_KIND, service, identifier, b"of %d" % at, service)


def test_older_tokens_from_a_slow_process_do_not_replace_later_ones() -> None:
    later, older = issued(70), issued(60)
    assert later.issued_ms() == 70
    assert with_fresh([later, *OLD[1:]], [older]) == [later, *OLD[1:]]
    assert with_fresh([older, *OLD[1:]], [later]) == [later, *OLD[1:]]
    # Each service by itself.
    other = issued(80, "two:8020")
    assert with_fresh([other, later], [older]) == [later, other]
    assert with_fresh([later], FRESH) == FRESH, "where one does not say it, what comes is newer"


@pytest.mark.parametrize("form", [writable, protobuf])
def test_the_file_of_the_process_gets_fresh_tokens(
    form: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "container_tokens"
    path.write_bytes(form(OLD))  # type: ignore[operator]
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    take_tokens(written_tokens(FRESH))
    assert [(each.kind, each.service, each.password) for each in read_tokens(path)] == [
        (HDFS_KIND, "one:8020", b"fresh"),
        (HDFS_KIND, "two:8020", b"old"),
        (RM_KIND, "one:8020", b"old"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def waits_for(folder: Path) -> bool:
    """Whether somebody waits for a lock of that folder, as the kernel tells it."""
    inode = f":{folder.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_of_two_processes_at_once_the_later_token_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes when the first has read the file and has not written it."""
    path = tmp_path / "container_tokens"
    path.write_bytes(written_tokens([issued(50)]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    second = threading.Thread(target=take_tokens, args=(written_tokens([issued(70)]),))

    def replace_late(path: Path, data: bytes) -> None:
        if second.ident is None:
            second.start()
            pause = threading.Event()
            while second.is_alive() and not waits_for(tmp_path):
                pause.wait(0.001)
        replace_whole(path, data)

    monkeypatch.setattr(token_files, "replace_whole", replace_late)
    take_tokens(written_tokens([issued(60)]))
    second.join()
    assert [each.issued_ms() for each in read_tokens(path)] == [70]


def test_tokens_that_cannot_be_taken_leave_the_file_and_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "container_tokens"
    path.write_bytes(writable(OLD))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(path))
    with pytest.raises(TokenFileError):
        take_tokens(b"HDTS\0\5")
    assert path.read_bytes() == writable(OLD)

    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "none" / "tokens"))
    with pytest.raises(TokenFileError, match="cannot be renewed"):
        take_tokens(written_tokens(FRESH))

    monkeypatch.delenv(TOKEN_FILE_VARIABLE)
    with caplog.at_level(logging.WARNING):
        take_tokens_or_tell(written_tokens(FRESH))
    assert f"{TOKEN_FILE_VARIABLE} is not set" in caplog.text
