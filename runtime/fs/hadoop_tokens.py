"""Hadoop's token files: read, and the token found that a NameNode wants. Form: Hadoop's Credentials, versions 0 and 1.

Owner: any thread; pure but for reading the file. Identifiers and passwords are secrets: they are in no text that is
made here, no `repr` and no error. Whatever a file holds, the answer is tokens or a TokenFileError.
"""

from __future__ import annotations

import base64
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, overload

from yarrow.runtime.common.errors import YarrowError

#: The variable in which YARN, or the starter of a Hadoop program, names the file.
TOKEN_FILE_VARIABLE: Final = "HADOOP_TOKEN_FILE_LOCATION"
HDFS_KIND: Final = "HDFS_DELEGATION_TOKEN"
#: By WebHDFS with and without TLS. Their service is the web address.
WEB_KINDS: Final = ("WEBHDFS delegation", "SWEBHDFS delegation")
RM_KIND: Final = "RM_DELEGATION_TOKEN"
#: The beginning of a token file, and the version that Hadoop's Writables have.
MAGIC: Final = b"HDTS"
WRITABLE: Final = 0
_PROTOBUF: Final = 1
#: The kind in the identifier of a token of the ResourceManager.
_MAX_DATE_FIELD: Final = 5
#: Kinds of fields of protobuf.
_VARINT: Final[Literal[0]] = 0
_BYTES: Final[Literal[2]] = 2
_MOST_BYTES: Final = 16 << 20
_MOST_TOKENS: Final = 10_000


class TokenFileError(YarrowError):
    """The file is not of a form that is read here."""


@dataclass(frozen=True, slots=True)
class HadoopToken:
    """A token of a token file."""

    kind: str
    #: `host:port` or `ip:port` of the service; `ha-hdfs:name` for NameNodes that replace each other.
    service: str
    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    #: The name of the token in its file; "" = its service, as of Hadoop's own tokens.
    alias: str = field(default="", repr=False)

    def url_text(self) -> str:
        """The text that WebHDFS takes as `delegation`: a secret."""
        parts = (self.identifier, self.password, self.kind.encode(), self.service.encode())
        written = b"".join(written_length(len(part)) + part for part in parts)
        return base64.urlsafe_b64encode(written).decode().rstrip("=")

    def issued_ms(self) -> int | None:
        """Epoch milliseconds at which HDFS issued the token; None if its identifier does not say that."""
        if self.kind not in (HDFS_KIND, *WEB_KINDS):
            return None
        try:
            return _dates_of_written(Cursor(self.identifier))[0]
        except TokenFileError:
            return None

    def end_ms(self) -> int | None:
        """Epoch milliseconds after which nobody renews the token; None if its identifier does not say that."""
        try:
            if self.kind in (HDFS_KIND, *WEB_KINDS):
                return _dates_of_written(Cursor(self.identifier))[1]
            if self.kind == RM_KIND:
                return dict(_fields(Cursor(self.identifier), _VARINT)).get(_MAX_DATE_FIELD)
        except TokenFileError:
            return None
        return None


def read_tokens(path: Path) -> Sequence[HadoopToken]:
    """All tokens of a file. Raises OSError, TokenFileError."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    try:
        return parse_tokens(content)
    except TokenFileError as error:
        raise TokenFileError(f"{path} cannot be read as a token file of Hadoop: {error}") from None


def parse_tokens(content: bytes) -> Sequence[HadoopToken]:
    """All tokens of a file's content. Raises TokenFileError."""
    if len(content) > _MOST_BYTES:
        raise TokenFileError(f"it has more than {_MOST_BYTES >> 20} MiB")
    data = Cursor(content)
    if data.take(len(MAGIC)) != MAGIC:
        raise TokenFileError("it does not begin with HDTS")
    version = data.take(1)[0]
    if version == WRITABLE:
        return list(_written(data))
    if version == _PROTOBUF:
        return list(_of_protobuf(Cursor(data.take(data.varint()))))
    raise TokenFileError(f"it has version {version}, and versions {WRITABLE} and {_PROTOBUF} are known")


def token_for(
    tokens: Iterable[HadoopToken], kinds: Sequence[str], services: Sequence[str]
) -> HadoopToken | None:
    """The first of `tokens` for one of the services, the kinds in their order; None if there is none."""
    known = list(tokens)
    for kind in kinds:
        for token in known:
            if token.kind == kind and token.service in services:
                return token
    return None


def services_of(host: str, port: int) -> tuple[str, ...]:
    """The names that a token for this address may call its service. Asks the name service.

    Hadoop writes the number, or the name if hadoop.security.token.service.use_ip is false.
    """
    names = [host]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    names += [str(entry[4][0]) for entry in found]
    return tuple(dict.fromkeys(f"{name}:{port}" for name in names))


def token_file() -> Path | None:
    """The file that this process was given."""
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    return Path(named) if named else None


class Cursor:
    """Reads numbers and bytes in Hadoop's own form and in that of protobuf. Raises TokenFileError where they end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        """Whether all was read."""
        return self._position == len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise TokenFileError("it ends in the middle of a token")
        part, self._position = self._data[self._position : end], end
        return part

    def number(self) -> int:
        """A number as WritableUtils of Hadoop writes it."""
        (first,) = self.take(1)
        if first < 128:
            return first
        signed = first - 256
        if signed >= -112:
            return signed
        size = -(signed + 112) if signed >= -120 else -(signed + 120)
        value = int.from_bytes(self.take(size), "big")
        return value if signed >= -120 else ~value

    def bytes(self) -> bytes:
        """A length, and as many bytes."""
        return self.take(self.number())

    def text(self) -> str:
        """The same as text."""
        return _text(self.bytes())

    def varint(self) -> int:
        """As protobuf writes a number that is not negative."""
        value = 0
        for shift in range(0, 70, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 128:
                return value
        raise TokenFileError("it has a number without an end")


def _written(data: Cursor) -> Iterator[HadoopToken]:
    count = data.number()
    if not 0 <= count <= _MOST_TOKENS:
        raise TokenFileError(f"it claims to have {count} tokens")
    for _ in range(count):
        alias = data.text()
        identifier, password = data.bytes(), data.bytes()
        yield HadoopToken(data.text(), data.text(), identifier, password, alias)


def _of_protobuf(data: Cursor) -> Iterator[HadoopToken]:
    """Field 1, repeated: an alias (1) and a token (2), which has identifier, password, kind and service (1 to 4)."""
    for number, entry in _fields(data, _BYTES):
        if number != 1:
            continue
        alias = _text(dict(_fields(Cursor(entry), _BYTES)).get(1, b""))
        for inner, token in _fields(Cursor(entry), _BYTES):
            if inner == 2:
                parts = dict(_fields(Cursor(token), _BYTES))
                kind, service = _text(parts.get(3, b"")), _text(parts.get(4, b""))
                yield HadoopToken(kind, service, parts.get(1, b""), parts.get(2, b""), alias)


@overload
def _fields(data: Cursor, wanted: Literal[0]) -> Iterator[tuple[int, int]]: ...
@overload
def _fields(data: Cursor, wanted: Literal[2]) -> Iterator[tuple[int, bytes]]: ...
def _fields(data: Cursor, wanted: int) -> Iterator[tuple[int, int | bytes]]:
    """Fields of one kind by their number; others are left out."""
    while not data.at_end:
        tag = data.varint()
        kind = tag & 7
        value: int | bytes
        if kind == _BYTES:
            value = data.take(data.varint())
        elif kind == _VARINT:
            value = data.varint()
        elif kind in (1, 5):
            value = data.take(8 if kind == 1 else 4)
        else:
            raise TokenFileError("it is not of protobuf's form")
        if kind == wanted:
            yield tag >> 3, value


def _dates_of_written(identifier: Cursor) -> tuple[int, int]:
    """When a token was issued, and when its renewals end; epoch milliseconds."""
    identifier.take(1)  # version of the identifier
    for _ in range(3):
        identifier.bytes()  # owner, renewer, real user
    return identifier.number(), identifier.number()


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise TokenFileError("it has a name that is not UTF-8") from None


def written_length(value: int) -> bytes:
    """A length as WritableUtils of Hadoop writes it."""
    if value < 128:
        return bytes([value])
    size = (value.bit_length() + 7) // 8
    return bytes([256 - 112 - size]) + value.to_bytes(size, "big")
