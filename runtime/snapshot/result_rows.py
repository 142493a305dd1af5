"""Rows of execute_and_collect on their way to the client: typed, plain, or as a last resort sealed pickles.

A client reads answers from the network, and a pickle runs its writer's code. So rows of declared types are
sent by the type's serializer, and others as plain values. User classes are sent by their fields if the
client's program has the class. Only other values are pickled, under a MAC whose key both ends have by other
ways than REST. Owner: the calling thread. The type and the key are never taken from the received bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row
from yarrow.runtime.common.errors import UnprovedRowsError, UnreadableRowsError
from yarrow.runtime.data.errors import RowFormatError, SerializationError, UnsupportedTypeInfoError
from yarrow.runtime.data.key_classes import loaded_class, resolve_class
from yarrow.runtime.data.serializers.serializers import RowsSerializer, TupleRows, serializer_for
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.security.result_proof import ResultProof
from yarrow.runtime.snapshot.plain_trees import UntrustedValueError, UnwritableValueError
from yarrow.runtime.snapshot.plain_values import dump_plain, dump_shaped, dump_trees, load_plain
from yarrow.runtime.snapshot.row_columns import ColumnsWriter, load_columns
from yarrow.runtime.snapshot.value_serializers import spec_holds_pickles

# First bytes.
_TYPED: Final = b"\x01"
_PLAIN: Final = b"\x02"
_COLUMNS: Final = b"\x03"
_PICKLED: Final = b"\x04"

_LENGTH: Final = struct.Struct("<I")
_MAC_BYTES: Final = hashlib.sha256().digest_size
#: Most bytes of the description of a pickled value.
_MAX_REASON: Final = 500
#: Depth of the search for a value without a safe form.
_MAX_DEPTH: Final = 6


class ResultStream(msgspec.Struct, frozen=True):
    """The collect operator whose rows a seal covers: one operator of one job."""

    job_id: str
    collect_id: str
    #: The declared type of the rows, from the job graph.
    type_spec: TypeSpec = None

    def serializer(self) -> RowsSerializer | None:
        """The serializer of the declared type; None if there is none, or it needs pickles."""
        if self.type_spec is None or spec_holds_pickles(self.type_spec):
            return None
        try:
            return serializer_for(TypeInformation.from_spec(self.type_spec))
        except UnsupportedTypeInfoError:
            return None

    def seal(self, key: bytes, body: bytes | memoryview) -> bytes:
        """The MAC of the rest of a message."""
        mac = hmac.new(key, f"{self.job_id}\0{self.collect_id}\0".encode(), "sha256")
        mac.update(body)
        return mac.digest()


class ResultWriter:
    """Writes the rows of one collect operator."""

    def __init__(self, stream: ResultStream, key: bytes) -> None:
        self._stream = stream
        self._key = key
        self._typed = stream.serializer()
        self._columns = ColumnsWriter()
        #: Why rows are pickled; empty = they are not.
        self._reason = b""

    def dump(self, rows: list[Any]) -> bytes:
        """Encodes a run of rows, at least one. Raises pickle's errors for a row that no form can hold."""
        if self._typed is not None:
            try:
                return _TYPED + self._typed.dump_rows(rows)
            except (SerializationError, RowFormatError):
                # The program may emit rows of another type than declared; here nobody depends on the type.
                self._typed = None
        if not self._reason:
            try:
                return self._dump_plain(rows)
            except UnwritableValueError as error:
                self._reason = _describe(rows, error).encode()[:_MAX_REASON]
        body = _LENGTH.pack(len(self._reason)) + self._reason + pickle.dumps(rows, 5)
        return _PICKLED + self._stream.seal(self._key, body) + body

    def _dump_plain(self, rows: list[Any]) -> bytes:
        shaped = dump_shaped(rows)
        if shaped is not None:
            return _PLAIN + shaped
        columns = self._columns.dump(rows)
        return _PLAIN + dump_trees(rows) if columns is None else _COLUMNS + columns


class ResultReader:
    """Reads the rows of one collect operator; code may run only if the writer is proved."""

    def __init__(self, stream: ResultStream, proof: ResultProof) -> None:
        self._stream = stream
        self._proof = proof
        self._typed = stream.serializer()
        # A server that may run code here may also import modules.
        self._resolve = resolve_class if proof.server_is_known else loaded_class

    def load(self, data: bytes) -> list[Any]:
        """Decodes rows of `ResultWriter.dump`.

        Raises UnprovedRowsError for pickled rows of an unproved server, and UnreadableRowsError for any other
        unreadable rows.
        """
        form, body = data[:1], memoryview(data)[1:]
        try:
            if form == _TYPED and self._typed is not None:
                return self._load_typed(self._typed, body)
            if form == _PLAIN:
                return load_plain(body, resolve=self._resolve)
            if form == _COLUMNS:
                return load_columns(body, self._resolve)
        except UntrustedValueError:
            raise UnprovedRowsError(self._refusal(b"a value in plain rows")) from None
        except Exception as error:  # foreign bytes can cause any error
            raise self._unreadable(str(error)) from error
        if form == _PICKLED:
            return self._load_pickled(body)
        raise self._unreadable("they are of no form that this client knows: run the version of the cluster")

    def _load_typed(self, typed: RowsSerializer, body: memoryview) -> list[Any]:
        try:
            return typed.load_rows(body)
        except SerializationError:
            if not isinstance(typed, TupleRows):
                raise
            # As in the writer: rows of another type than declared are returned unchanged.
            return typed.load_untyped(body)

    def _load_pickled(self, body: memoryview) -> list[Any]:
        mac, sealed = body[:_MAC_BYTES], body[_MAC_BYTES:]
        if len(sealed) < _LENGTH.size:
            raise self._unreadable("they are cut short")
        start = _LENGTH.size + _LENGTH.unpack_from(sealed)[0]
        key = self._proof.key
        is_ours = bool(key) and hmac.compare_digest(self._stream.seal(key, sealed), mac)
        if not is_ours and not self._proof.server_is_known:
            raise UnprovedRowsError(self._refusal(bytes(sealed[_LENGTH.size : start])))
        rows: list[Any] = pickle.loads(sealed[start:])
        return rows

    def _refusal(self, reason: bytes) -> str:
        what = reason[:_MAX_REASON].decode("utf-8", "replace")
        why = (
            "its seal is not of this cluster's secret"
            if self._proof.key
            else "this client has no secret of the cluster to check its seal with"
        )
        return (
            f"job {self._stream.job_id}: execute_and_collect got pickled rows, and {why}: over plain HTTP"
            " anybody could have sent them, and reading them runs code. The rows are pickled because of"
            f" {what!r}. Declare an output_type for the operator before, or return plain values (numbers,"
            " texts, dataclasses). Or run the client where the cluster's secrets file is"
            " (security.cluster.directory, or the client that started the application on YARN). Or have REST"
            " prove itself by TLS (security.ssl.rest.enabled with a truststore)."
        )

    def _unreadable(self, problem: str) -> UnreadableRowsError:
        return UnreadableRowsError(
            f"job {self._stream.job_id}: rows of execute_and_collect cannot be read: {problem}"
        )


def _describe(rows: list[Any], error: UnwritableValueError) -> str:
    for row in rows:
        found = _place_of(row, "", _MAX_DEPTH)
        if found is not None:
            path, cause = found
            return f"field {path.lstrip('.')}: {cause}" if path else f"the row: {cause}"
    return f"the rows: {error}"


def _place_of(value: Any, path: str, depth: int) -> tuple[str, UnwritableValueError] | None:
    """Path of the innermost value without a safe form; None if all values have one."""
    try:
        dump_plain([value])
        return None
    except UnwritableValueError as error:
        found = error
    for name, part in _parts(value) if depth else ():
        inner = _place_of(part, path + name, depth - 1)
        if inner is not None:
            return inner
    return path, found


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Row):
        fields = value._fields or [f"f{index}" for index in range(len(value._values))]
        yield from ((f".{name}", part) for name, part in zip(fields, value._values, strict=True))
    elif isinstance(value, dict):
        yield from ((f"[{key!r:.50}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        names = getattr(value, "_fields", None)
        for index, part in enumerate(value):
            yield f".{names[index]}" if names else f"[{index}]", part
    elif hasattr(value, "__dict__"):
        yield from ((f".{name}", part) for name, part in vars(value).items())
