"""Undeclared Python values as bytes: self-describing, safe to read, and fast for plain values.

The first byte tells four forms apart. These are one plain value, one tuple of plain values, a run of
equal-shaped values, and a run of trees for everything else. One MessagePack call writes a run of equal-shaped
values. Owner: the calling thread; no state. Errors here know no operator and no state: value_serializers adds
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from yarrow.runtime.data.key_classes import resolve_class
from yarrow.runtime.snapshot.plain_shapes import ATOMS, decoder_of, shape_of
from yarrow.runtime.snapshot.plain_trees import TreeReader, TreeWriter, UnwritableValueError
from yarrow.runtime.snapshot.record_classes import StoredClass

VERSION: Final = 1

_ONE: Final = 0x10
_SHAPED: Final = 0x11
_TREES: Final = 0x12
_ONE_TUPLE: Final = 0x13
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder()
_TREE_DECODER: Final = msgspec.msgpack.Decoder(tuple[list[StoredClass], list[Any]])
_TUPLE_DECODER: Final = msgspec.msgpack.Decoder(tuple[Any, ...])
_ONE_BYTE: Final = bytes((_ONE,))
_ONE_TUPLE_BYTE: Final = bytes((_ONE_TUPLE,))


def dump_plain(
    values: Sequence[Any], *, allow_pickle: bool = False, pickled: set[str] | None = None
) -> bytes:
    """Encodes a run of values; adds the names of pickled types to `pickled`.

    Raises UnwritableValueError with the type of a value without a safe form.
    """
    if not isinstance(values, list):
        values = list(values)
    shaped = dump_shaped(values)
    return dump_trees(values, allow_pickle, pickled) if shaped is None else shaped


def dump_shaped(values: list[Any]) -> bytes | None:
    """Encodes a run of plain values of one shape; None for any other."""
    try:
        shape = shape_of(values)
        if shape is not None:
            head = bytearray((_SHAPED, len(shape)))
            head += shape.encode()
            _ENCODER.encode_into(values, head, len(head))
            return bytes(head)
    except (OverflowError, UnicodeEncodeError, RecursionError):
        pass  # an integer beyond 64 bits, a lone surrogate, a value that may contain itself
    return None


def dump_trees(values: Sequence[Any], allow_pickle: bool = False, pickled: set[str] | None = None) -> bytes:
    """Encodes a run of any values; like `dump_plain`."""
    for check_text in (False, True):
        writer = TreeWriter(allow_pickle, check_text)
        tree = writer.tree
        try:
            trees = [tree(value) for value in values]
            data = _ENCODER.encode((writer.classes, trees))
        except UnicodeEncodeError:
            continue
        except RecursionError:
            raise UnwritableValueError(
                type(values[0]), "it contains itself or is nested too deeply"
            ) from None
        if pickled is not None:
            pickled |= writer.pickled
        return bytes((_TREES,)) + data
    raise AssertionError("text was checked")


def load_plain(
    data: bytes | memoryview, *, trusted: bool = False, resolve: Callable[[str], type] = resolve_class
) -> list[Any]:
    """Decodes a run of `dump_plain`; pickled values only if `trusted`. `resolve` finds classes by their names.

    Raises ValueError for other bytes, UntrustedValueError, and ChangedFieldError for a changed class.
    """
    form = data[0] if data else -1
    view = memoryview(data)
    try:
        if form == _SHAPED:
            start = 2 + view[1]
            return decoder_of(str(view[2:start], "ascii")).decode(view[start:])
        if form == _TREES:
            classes, trees = _TREE_DECODER.decode(view[1:])
            reader = TreeReader(classes, trusted, resolve).value
            return [tree if type(tree) is not list else reader(tree) for tree in trees]
        if form == _ONE:
            return [_DECODER.decode(view[1:])]
        if form == _ONE_TUPLE:
            return [_TUPLE_DECODER.decode(view[1:])]
    except (msgspec.MsgspecError, IndexError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"plain values cannot be read: {error}") from error
    raise ValueError("plain values of an unknown form: written by a later version, or damaged")


def dump_plain_value(value: Any, *, allow_pickle: bool = False, pickled: set[str] | None = None) -> bytes:
    """Encodes one value."""
    kind = type(value)
    try:
        if kind in ATOMS:
            return _ONE_BYTE + _ENCODER.encode(value)
        if kind is tuple and ATOMS.issuperset(map(type, value)):
            return _ONE_TUPLE_BYTE + _ENCODER.encode(value)
    except (OverflowError, UnicodeEncodeError):
        pass
    return dump_plain([value], allow_pickle=allow_pickle, pickled=pickled)


def load_plain_value(data: bytes | memoryview, *, trusted: bool = False) -> Any:
    """Decodes a value of `dump_plain_value`; raises the errors of `load_plain`."""
    form = data[0] if data else -1
    if form in (_ONE, _ONE_TUPLE):
        try:
            return (_DECODER if form == _ONE else _TUPLE_DECODER).decode(memoryview(data)[1:])
        except msgspec.MsgspecError as error:
            raise ValueError(f"a plain value cannot be read: {error}") from error
    values = load_plain(data, trusted=trusted)
    if len(values) != 1:
        raise ValueError(f"one plain value was expected, {len(values)} are here")
    return values[0]
