"""Hadoop's token files in both forms, and the token that a NameNode wants out of them; whatever else a file holds."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yarrow.runtime.fs.hadoop_tokens import (
    HDFS_KIND,
    RM_KIND,
    WEB_KINDS,
    Cursor,
    HadoopToken,
    TokenFileError,
    parse_tokens,
    read_tokens,
    services_of,
    token_for,
)

ENDS = 1_800_000_000_000

TOKENS = st.lists(
    st.builds(
        HadoopToken,
        kind=st.text(max_size=300),
        service=st.text(max_size=300),
        identifier=st.binary(max_size=300),
        password=st.binary(max_size=300),
        alias=st.text(max_size=30),
    ),
    max_size=4,
)


def number(value: int) -> bytes:
    """A long as Hadoop's WritableUtils.writeVLong writes it."""
    if -112 <= value <= 127:
        return value.to_bytes(1, "big", signed=True)
    mark, rest = (-120, ~value) if value < 0 else (-112, value)
    size = (rest.bit_length() + 7) // 8
    return (mark - size).to_bytes(1, "big", signed=True) + rest.to_bytes(size, "big")


def varint(value: int) -> bytes:
    """As protobuf writes a number."""
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def counted(value: bytes) -> bytes:
    return number(len(value)) + value


def field(index: int, value: bytes) -> bytes:
    return varint(index << 3 | 2) + varint(len(value)) + value


def writable(tokens: Sequence[HadoopToken]) -> bytes:
    entries = [
        counted(token.alias.encode())
        + counted(token.identifier)
        + counted(token.password)
        + counted(token.kind.encode())
        + counted(token.service.encode())
        for token in tokens
    ]
    secrets = number(1) + counted(b"a secret") + counted(b"its value")
    return b"HDTS\0" + number(len(tokens)) + b"".join(entries) + secrets


def protobuf(tokens: Sequence[HadoopToken]) -> bytes:
    entries = [
        field(
            1,
            field(1, token.alias.encode())
            + field(
                2,
                field(1, token.identifier)
                + field(2, token.password)
                + field(3, token.kind.encode())
                + field(4, token.service.encode()),
            ),
        )
        for token in tokens
    ]
    # A field of the future is left out: a number, and one of eight bytes.
    content = b"".join(entries) + field(2, field(1, b"a secret")) + b"\x78\x05" + b"\x79" + bytes(8)
    return b"HDTS\1" + varint(len(content)) + content


@given(TOKENS)
@example([HadoopToken("k", "s", b"i" * 70_000, b"p")])
def test_both_forms_are_read_as_they_are_written(tokens: list[HadoopToken]) -> None:
    assert parse_tokens(writable(tokens)) == tokens
    assert parse_tokens(protobuf(tokens)) == tokens


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_read_as_they_are_written(value: int) -> None:
    assert Cursor(number(value)).number() == value


@given(st.binary(max_size=200))
@example(b"")
@example(b"HDTS")
@example(b"HDTS\0\x8c" + b"\xff" * 8)
@example(b"HDTS\0\x88" + b"\x7f" * 8)
@example(b"HDTS\1" + b"\xff" * 30)
@example(b"HDTS\1\x01\x0b")
@example(b"HDTS\2")
@example(b"PK\3\4")
def test_any_other_content_is_an_error_of_its_own(content: bytes) -> None:
    for beginning in (b"", b"HDTS\0", b"HDTS\1"):
        try:
            found = parse_tokens(beginning + content)
        except TokenFileError:
            continue
        assert all(isinstance(token, HadoopToken) for token in found)


@given(TOKENS.filter(bool), st.data())
def test_a_damaged_file_is_an_error_of_its_own(tokens: list[HadoopToken], data: st.DataObject) -> None:
    for content in (writable(tokens), protobuf(tokens)):
        place = data.draw(st.integers(5, len(content) - 1))
        damaged = bytearray(content)
        damaged[place] = data.draw(st.integers(0, 255))
        for broken in (bytes(damaged), content[:place]):
            try:
                for token in parse_tokens(broken):
                    token.end_ms()
            except TokenFileError:
                pass


def test_a_file_cut_short_is_refused_with_its_name_and_nothing_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(writable([HadoopToken(HDFS_KIND, "a:1", b"identifier", b"the-password")])[:40])
    with pytest.raises(TokenFileError, match="ends in the middle") as raised:
        read_tokens(path)
    assert str(path) in str(raised.value)
    assert "password" not in str(raised.value)


@given(TOKENS.filter(bool))
def test_the_text_for_addresses_holds_the_four_parts(tokens: list[HadoopToken]) -> None:
    token = tokens[0]
    text = token.url_text()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    parts = Cursor(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    assert (parts.bytes(), parts.bytes()) == (token.identifier, token.password)
    assert (parts.text(), parts.text(), parts.at_end) == (token.kind, token.service, True)


def test_a_token_says_when_it_ends_and_shows_nothing_secret() -> None:
    names = counted(b"alice@EXAMPLE.COM") + counted(b"yarn") + counted(b"")
    identifier = b"\0" + names + number(ENDS - 1) + number(ENDS) + number(1) + number(2)
    token = HadoopToken(HDFS_KIND, "a:1", identifier, b"the-password")
    assert token.end_ms() == ENDS
    of_manager = field(1, b"alice") + b"\x20" + varint(ENDS - 1) + b"\x28" + varint(ENDS) + b"\x30\x07"
    assert HadoopToken(RM_KIND, "a:1", of_manager, b"").end_ms() == ENDS
    assert HadoopToken(RM_KIND, "a:1", b"\xff", b"").end_ms() is None
    assert HadoopToken(HDFS_KIND, "a:1", identifier[:9], b"").end_ms() is None
    assert HadoopToken("YARN_AM_RM_TOKEN", "a:1", b"x", b"y").end_ms() is None
    assert repr(token) == "HadoopToken(kind='HDFS_DELEGATION_TOKEN', service='a:1')"


def test_the_token_of_the_name_node_is_chosen() -> None:
    def token(kind: str, service: str) -> HadoopToken:
        return HadoopToken(kind, service, b"", b"")

    of_web, of_rpc = token(WEB_KINDS[0], "10.0.0.1:9870"), token(HDFS_KIND, "10.0.0.1:8020")
    of_names = token(HDFS_KIND, "ha-hdfs:one")
    known = [token("RM_DELEGATION_TOKEN", "10.0.0.1:8020"), of_web, of_names, of_rpc]
    kinds = (HDFS_KIND, *WEB_KINDS)
    assert token_for(known, kinds, ("10.0.0.1:8020", "10.0.0.1:9870")) is of_rpc
    assert token_for(known, WEB_KINDS, ("10.0.0.1:8020", "10.0.0.1:9870")) is of_web
    assert token_for(known, kinds, ("ha-hdfs:one",)) is of_names
    assert token_for(known, kinds, ("10.0.0.2:8020",)) is None


def test_a_service_is_known_by_name_and_number() -> None:
    assert services_of("localhost", 8020)[0] == "localhost:8020"
    assert "127.0.0.1:8020" in services_of("localhost", 8020)
    assert services_of("no-such-host.invalid", 1) == ("no-such-host.invalid:1",)
