"""Values of Avro's types: what a writer takes for each, exactly, and the Rows that stand for records.

Owner: the calling thread; no state. A value that would lose something (digits, a part of a second, a fraction) is
refused with the path of its field. Functions are made once a schema and run once a record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Any
from uuid import UUID

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, own_names, row_of
from yarrow.datastream.formats.avro_schema import AvroType
from yarrow.runtime.common.errors import InvalidProgramError

Convert = Callable[[Any], Any]


def _bounds() -> dict[str, tuple[int, int]]:
    """Return for each kind of whole numbers the least and the greatest. Those of times are times of Python, too."""
    found = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
    epoch, day = datetime(1970, 1, 1), timedelta(days=1)
    found["date"] = (datetime.min - epoch) // day, (datetime.max - epoch) // day
    for unit, step in (("millis", timedelta(milliseconds=1)), ("micros", timedelta(microseconds=1))):
        found[f"time-{unit}"] = 0, day // step - 1
        instants = (datetime.min - epoch) // step, (datetime.max - epoch) // step
        found[f"timestamp-{unit}"] = found[f"local-timestamp-{unit}"] = instants
    return found


#: Kind of whole numbers -> the least and the greatest of them.
_BOUNDS = _bounds()


class AvroValueError(ValueError):
    """A value does not fit its type; the message begins with the path of the field."""

    def __init__(self, path: str, value: object, expected: str) -> None:
        super().__init__(f"{path or 'the record'}: {expected} is expected, not {value!r}")


def writer_values(root: AvroType) -> Convert:
    """Return a function from a record to the record that fastavro writes without loss.

    The function raises AvroValueError. A record is a dict, or a Row or tuple with a value for each field.
    """
    return _writer(root, "", {})


def _writer(declared: AvroType, path: str, records: dict[int, Convert]) -> Convert:
    """Return the function for a type; `records` has those of the records that this type is in, by `id`."""
    kind = declared.kind
    if kind == "record":
        return records.get(id(declared)) or _record_writer(declared, path, records)
    if kind == "union":
        return _union_writer(declared, path, records)
    if kind == "array":
        element = _writer(declared.parts[0], f"{path}[]", records)
        return lambda value: [element(part) for part in _of(path, value, "a list", list, tuple)]
    if kind == "map":
        item = _writer(declared.parts[0], f"{path}{{}}", records)
        return lambda value: {
            _text(path, key, "a text as key"): item(part)
            for key, part in _of(path, value, "a dict", dict).items()
        }
    return lambda value: _plain(declared, path, value)


def _record_writer(declared: AvroType, path: str, records: dict[int, Convert]) -> Convert:
    # A record that contains itself is written by this function, which names fields from here on.
    records = {**records, id(declared): lambda value: convert(value)}
    prefix = f"{path}." if path else ""
    names = [name for name, _ in declared.fields]
    known = frozenset(names)
    writers = [(name, _writer(part, f"{prefix}{name}", records)) for name, part in declared.fields]
    needed = known - declared.defaults.keys()
    types = dict(declared.fields)
    # Names of a Row decide where it has those of the schema. Otherwise its fields stand in order, as in `row_fields`.
    defaults = {name: default_of(name, types[name], raw) for name, raw in declared.defaults.items()}

    def convert(value: Any) -> Any:
        if isinstance(value, Row) and not known.isdisjoint(own_names(value) or ()):
            value = value.as_dict()
        elif isinstance(value, Row | tuple):
            if len(value) != len(names):
                raise AvroValueError(path, value, f"{len(names)} values for {names}")
            value = dict(zip(names, value, strict=True))
        elif not isinstance(value, Mapping):
            raise AvroValueError(path, value, "a dict or a Row")
        if not known.issuperset(value):
            raise AvroValueError(path, sorted(set(value) - known), f"no field but {names}")
        if not needed.issubset(value):
            raise AvroValueError(path, dict(value), f"a value for {sorted(needed - set(value))}")
        return {name: write(value[name] if name in value else defaults[name]) for name, write in writers}

    return convert


def default_of(name: str, declared: AvroType, raw: Any) -> Any:
    """Return the default of a field, which a schema has as JSON, as a reader gives the value.

    Each call makes a new value. Raises InvalidProgramError naming the field for a default of another type.
    """
    try:
        return _default(declared, raw)
    except RecursionError:
        raise InvalidProgramError(
            f"AvroSchema: field {name!r}: the default {raw!r} of the record {declared.name} contains itself without end"
        ) from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidProgramError(
            f"AvroSchema: field {name!r} of type {declared.kind} cannot have the default {raw!r}: {error}"
        ) from error


def _default(declared: AvroType, raw: Any) -> Any:
    kind = declared.kind
    match kind:
        case "union":
            return _default_of_union(declared, raw)
        case "record":
            given = {**declared.defaults, **raw}
            return {name: _default(part, given[name]) for name, part in declared.fields if name in given}
        case "array":
            return [_default(declared.parts[0], part) for part in raw]
        case "map":
            return {key: _default(declared.parts[0], part) for key, part in raw.items()}
        case "bytes" | "fixed":
            return raw.encode("latin-1")
        case "float" | "double":
            return float(raw)
        case "uuid":
            return UUID(raw)
        case "decimal":
            unscaled = int.from_bytes(raw.encode("latin-1"), signed=True)
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -declared.scale))
        case "date":
            return date(1970, 1, 1) + timedelta(days=raw)
    return _default_time(kind, raw) if kind.endswith(("-millis", "-micros")) else raw


def _default_of_union(declared: AvroType, raw: Any) -> Any:
    """The default is that of the first branch that it fits."""
    for part in declared.parts:
        try:
            value = _default(part, raw)
            writer_values(part)(value)
        except (TypeError, ValueError, AttributeError, OverflowError, InvalidProgramError):
            continue
        return value
    raise ValueError("no branch has it")


def _default_time(kind: str, raw: int) -> time | datetime:
    since = timedelta(milliseconds=raw) if kind.endswith("millis") else timedelta(microseconds=raw)
    at = datetime(1970, 1, 1, tzinfo=UTC) + since
    if kind.startswith("time-"):
        return at.time()
    return at if kind.startswith("timestamp-") else at.replace(tzinfo=None)


def _union_writer(declared: AvroType, path: str, records: dict[int, Convert]) -> Convert:
    if (only := declared.without_null) is not None:
        write = (_branch_writer if _has_choice(only, set()) else _writer)(only, path, records)
        return lambda value: None if value is None else write(value)
    branches = [_branch_writer(part, path, records) for part in declared.parts]
    by_name = {part.name: write for part, write in zip(declared.parts, branches, strict=True) if part.name}
    # A number goes to the branch that keeps its kind and digits, whatever the order of the branches.
    pairs = list(zip(declared.parts, branches, strict=True))
    whole = [write for part, write in sorted(pairs, key=lambda pair: pair[0].kind not in ("int", "long"))]
    real = [write for part, write in sorted(pairs, key=lambda pair: pair[0].kind != "double")]

    def convert(value: Any) -> Any:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and value[0] in by_name:
            # fastavro's way to name the branch.
            return by_name[value[0]](value[1])
        for write in whole if isinstance(value, int) else real if isinstance(value, float) else branches:
            try:
                return write(value)
            except AvroValueError:
                continue
        raise AvroValueError(
            path, value, f"one of {', '.join(part.name or part.kind for part in declared.parts)}"
        )

    return convert


def _branch_writer(declared: AvroType, path: str, records: dict[int, Convert]) -> Convert:
    """Return the function for a branch of a union. It names the branch: fastavro would take another that fits, too."""
    write = _writer(declared, path, records)
    name = declared.name or declared.stored or declared.kind
    return lambda value: (name, write(value))


def _has_choice(declared: AvroType, seen: set[str]) -> bool:
    """Whether values of a type name branches: fastavro does not find them again where it has to choose around them.

    `seen`: the names of the records that were looked at.
    """
    if declared.kind == "record":
        if declared.name in seen:
            return False
        seen.add(declared.name)
        return any(_has_choice(part, seen) for _, part in declared.fields)
    if declared.kind == "union" and declared.without_null is None:
        return True
    return any(_has_choice(part, seen) for part in declared.parts)


def _plain(declared: AvroType, path: str, value: Any) -> Any:
    kind = declared.kind
    match kind:
        case "null":
            return _of(path, value, "None", type(None))
        case "boolean":
            return _of(path, value, "True or False", bool)
        case "int" | "long":
            return _whole(path, value, kind)
        case "float" | "double":
            return _real(path, value, kind)
        case "string":
            return _text(path, value, "a text")
        case "bytes":
            return bytes(_of(path, value, "bytes", bytes, bytearray))
        case "fixed":
            found = bytes(_of(path, value, "bytes", bytes, bytearray))
            if len(found) != declared.size:
                raise AvroValueError(path, value, f"{declared.size} bytes")
            return found
        case "enum":
            if not isinstance(value, str) or value not in declared.symbols:
                raise AvroValueError(path, value, f"one of {sorted(declared.symbols)}")
            return value
        case "decimal":
            return _decimal(declared, path, value)
        case "uuid":
            return _uuid(path, value)
    return _time(path, value, kind)


def _of(path: str, value: Any, expected: str, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise AvroValueError(path, value, expected)
    return value


def _text(path: str, value: Any, expected: str) -> str:
    text: str = _of(path, value, expected, str)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise AvroValueError(
                path, value, f"{expected} without a lone surrogate, for UTF-8 has none,"
            ) from None
    return text


def _whole(path: str, value: Any, kind: str) -> int:
    least, greatest = _BOUNDS[kind]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= greatest:
        raise AvroValueError(path, value, f"{kind} (from {least} to {greatest})")
    return value


def _real(path: str, value: Any, kind: str) -> float:
    """A float, or a whole number that keeps its digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AvroValueError(path, value, f"a number for {kind}")
    try:
        found = float(value)
        # Four bytes hold fewer digits, and a smaller range.
        kept = found if kind == "double" else struct.unpack("<f", struct.pack("<f", found))[0]
    except OverflowError:
        raise AvroValueError(path, value, f"a number in the range of {kind}") from None
    if isinstance(value, int) and kept != value:
        raise AvroValueError(path, value, f"a whole number that {kind} holds to the last digit")
    return found


def _decimal(declared: AvroType, path: str, value: Any) -> Decimal:
    expected = f"a Decimal of {declared.precision} digits, {declared.scale} of them behind the point,"
    if not isinstance(value, Decimal) or not value.is_finite():
        raise AvroValueError(path, value, expected)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)))
    shift = exponent + declared.scale
    unscaled, lost = (number * 10**shift, 0) if shift >= 0 else divmod(number, 10**-shift)
    fits = unscaled < 10**declared.precision
    if declared.size is not None:
        fits = fits and unscaled < 1 << (8 * declared.size - 1)
    if lost or not fits:
        raise AvroValueError(path, value, expected)
    return Decimal((sign, tuple(map(int, str(unscaled))), -declared.scale))


def _uuid(path: str, value: Any) -> str:
    try:
        return str(value if isinstance(value, UUID) else UUID(_of(path, value, "a UUID", str)))
    except ValueError:
        raise AvroValueError(path, value, "a UUID") from None


def _time(path: str, value: Any, kind: str) -> Any:
    """A date, a time of day or a timestamp; a whole number is taken as Avro stores it."""
    if isinstance(value, int):
        return _whole(path, value, kind)
    if kind == "date":
        if isinstance(value, datetime) or not isinstance(value, date):
            raise AvroValueError(path, value, "a date")
        return value
    is_local = kind.startswith("local-")
    if kind.startswith("time-"):
        if not isinstance(value, time) or value.tzinfo is not None:
            raise AvroValueError(path, value, "a time without a zone")
    elif not isinstance(value, datetime) or (is_local and value.tzinfo is not None):
        raise AvroValueError(path, value, "a datetime without a zone" if is_local else "a datetime")
    if kind.endswith("millis") and value.microsecond % 1000:
        raise AvroValueError(path, value, f"whole milliseconds, for the type is {kind},")
    if not kind.startswith("timestamp-"):
        return value
    if value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise AvroValueError(path, value, "a datetime from year 1 to 9999 in UTC") from None
    return value


# ---------------------------------------------------------------------- Rows


def row_type_of(declared: AvroType, path: str = "") -> TypeInformation:
    """Return the declared type of a schema's values as Rows have them.

    Raises InvalidProgramError for a record that contains itself.
    """
    match declared.kind:
        case "record":
            if declared.name in path.split("/"):
                raise InvalidProgramError(
                    f"the record {declared.name} contains itself: no Row type describes it"
                )
            inner = f"{path}/{declared.name}"
            return Types.ROW_NAMED(
                [name for name, _ in declared.fields],
                [row_type_of(part, inner) for _, part in declared.fields],
            )
        case "array":
            return Types.LIST(row_type_of(declared.parts[0], path))
        case "map":
            return Types.MAP(Types.STRING(), row_type_of(declared.parts[0], path))
        case "union":
            only = declared.without_null
            return Types.PICKLED_BYTE_ARRAY() if only is None else row_type_of(only, path)
        case "bytes" | "fixed":
            return Types.PRIMITIVE_ARRAY(Types.BYTE())
    return _ROW_TYPES.get(declared.kind, Types.PICKLED_BYTE_ARRAY)()


_ROW_TYPES: dict[str, Callable[[], TypeInformation]] = {
    "boolean": Types.BOOLEAN,
    "int": Types.INT,
    "long": Types.LONG,
    "float": Types.FLOAT,
    "double": Types.DOUBLE,
    "string": Types.STRING,
    "enum": Types.STRING,
    "uuid": Types.STRING,
    "decimal": Types.BIG_DEC,
    "date": Types.SQL_DATE,
    "time-millis": Types.SQL_TIME,
    "time-micros": Types.SQL_TIME,
    "timestamp-millis": Types.SQL_TIMESTAMP,
    "timestamp-micros": Types.SQL_TIMESTAMP,
    "local-timestamp-millis": Types.SQL_TIMESTAMP,
    "local-timestamp-micros": Types.SQL_TIMESTAMP,
}


def row_reader(declared: AvroType) -> Convert:
    """Return a function from a value of fastavro to that of `row_type_of`: a record becomes a Row."""
    return _row_part_reader(declared) or (lambda value: value)


def _row_part_reader(declared: AvroType) -> Convert | None:
    """The function of `row_reader`; None = the value stays as it is."""
    kind = declared.kind
    if kind == "record":
        return _record_reader(declared)
    if kind in ("array", "map"):
        part = _row_part_reader(declared.parts[0])
        if part is None:
            return None
        if kind == "array":
            return lambda value: [part(element) for element in value]
        return lambda value: {key: part(item) for key, item in value.items()}
    if (only := declared.without_null) is not None:
        read = _row_part_reader(only)
        return None if read is None else lambda value: None if value is None else read(value)
    if kind.startswith("timestamp-"):
        return lambda value: value.replace(tzinfo=None)
    return str if kind == "uuid" else None


def _record_reader(declared: AvroType) -> Convert:
    names = tuple(name for name, _ in declared.fields)
    parts = [
        (place, read)
        for place, (_, part) in enumerate(declared.fields)
        if (read := _row_part_reader(part)) is not None
    ]
    values_of = _values_getter(names)

    def read_row(record: Any) -> Row:
        values = list(values_of(record))
        for place, read in parts:
            values[place] = read(values[place])
        return row_of(names, values)

    return read_row


def _values_getter(names: tuple[str, ...]) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """Return a function that gives the values of a dict under these names."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda record: [record[name] for name in names]
