"""ValueSerializer: encodes the values of one state, in bulk and one by one, and decodes older forms.

Declared types are written by their columns, everything else by the safe codec of plain_values. Pickle is used
for single values without another form if the state's descriptor left the type open; it is logged by state
name. Owner: one thread at a time. A serializer must not know keys, key groups or files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from yarrow.common.typed_dict import TypedDictTypeInfo
from yarrow.common.typeinfo import BasicTypeInfo, PickledBytesTypeInfo, TypeInformation
from yarrow.runtime.data.errors import RowFormatError, SerializationError
from yarrow.runtime.data.serializers.columns import Buffer
from yarrow.runtime.data.serializers.serializers import ColumnarRows, TupleRows, serializer_for
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.snapshot.errors import StateMigrationError, StateSerializationError, UntrustedPickleError
from yarrow.runtime.snapshot.handles import SerializerConfig, ValueFormat
from yarrow.runtime.snapshot.plain_trees import UntrustedValueError, UnwritableValueError
from yarrow.runtime.snapshot.plain_values import dump_plain, dump_plain_value, load_plain, load_plain_value
from yarrow.runtime.snapshot.record_classes import ChangedFieldError
from yarrow.runtime.snapshot.type_migration import Convert, StatePlace, conversion

_LOG = logging.getLogger(__name__)
#: States whose pickled values this process has logged.
_logged: Final[set[tuple[str, str]]] = set()

#: Versions of the forms; a snapshot with a higher one comes from a later release.
TYPED_VERSION: Final = 1
PLAIN_VERSION: Final = 1

#: First byte of one value in MessagePack; 1 and 2 begin runs of typed values.
_ONE: Final = b"\x03"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder()


class ValueSerializer(Protocol):
    """Writes and reads values of one state. Errors name operator and state."""

    def config(self) -> SerializerConfig:
        """The description that is needed to read the values again; complete only after they were written."""
        ...

    def dump_values(self, values: list[Any]) -> bytes:
        """Encodes many values, at most 2**24. Raises StateSerializationError."""
        ...

    def dump_runs(self, values: list[Any], runs: Sequence[slice]) -> list[bytes]:
        """Encodes each run of values, as `dump_values` does for the run alone. No run is empty."""
        ...

    def dump_places(
        self, values: Sequence[Any], places: npt.NDArray[np.intp], runs: Sequence[slice]
    ) -> list[bytes]:
        """Encodes the values at the places of each run, as `dump_values` does for the run alone.

        For few values at many places (`places`: dtype intp, shape (entries,)). No run is empty.
        """
        ...

    def load_values(self, data: Buffer) -> list[Any]:
        """Decodes the values of `dump_values`. Raises StateSerializationError, StateMigrationError."""
        ...

    def dump_value(self, value: Any) -> bytes:
        """Encodes one value, in another form than a run of one."""
        ...

    def load_value(self, data: Buffer) -> Any:
        """Decodes a value of `dump_value`."""
        ...


def value_serializer(
    type_info: TypeInformation | None,
    state_name: str,
    operator_name: str,
    *,
    allow_pickle: bool = False,
    trusted: bool = True,
) -> ValueSerializer:
    """The serializer of a state with a declared type; None and Types.PICKLED_BYTE_ARRAY() mean plain values.

    With Types.PICKLED_BYTE_ARRAY() (the type of a descriptor without one) or `allow_pickle`, single values
    without a safe form are pickled. `trusted` False refuses to read pickled values.
    """
    if type_info is None or isinstance(type_info, PickledBytesTypeInfo):
        return PlainValues(state_name, operator_name, allow_pickle or type_info is not None, trusted)
    if isinstance(type_info, TypedDictTypeInfo):
        return TypedDictValues(type_info, state_name, operator_name, allow_pickle, trusted)
    return TypedValues(type_info, state_name, operator_name, trusted)


def restored_serializer(
    config: SerializerConfig,
    type_info: TypeInformation | None,
    operator: str,
    state: str,
    *,
    trusted: bool = False,
) -> ValueSerializer:
    """Reads values in the form of `config`, and returns and writes them in the present type.

    `trusted`: pickled values may be read. Raises StateMigrationError if the types cannot be converted.
    """
    writer = value_serializer(type_info, state, operator, trusted=trusted)
    written = writer.config()
    reader = stored_serializer(config, operator, state, trusted=trusted)
    if isinstance(writer, PlainValues):
        writer.note_pickled(config.pickled)
    declared = None if isinstance(type_info, PickledBytesTypeInfo) else type_info
    forms = (written.format, written.version, written.type_spec)
    if (config.format, config.version, config.type_spec) == forms or (
        declared is None and isinstance(reader, PlainValues)
    ):
        return writer
    if declared is None:
        return MigratedValues(reader, writer, None)
    place = StatePlace(operator, state)
    if config.type_spec is None:
        return MigratedValues(reader, writer, _acceptance(declared, place))
    was = TypeInformation.from_spec(config.type_spec)
    return MigratedValues(reader, writer, conversion(was, declared, place))


def stored_serializer(
    config: SerializerConfig, operator: str, state: str, *, trusted: bool = False
) -> ValueSerializer:
    """Reads and writes exactly the form of `config`, for tools and for state without a user in this program.

    Raises StateMigrationError for a form of a later release.
    """
    _check_version(config, operator, state)
    try:
        type_info = None if config.type_spec is None else TypeInformation.from_spec(config.type_spec)
    except ValueError as error:
        raise StateMigrationError(
            operator, state, "", f"a type this release does not know ({error})", "any type of Types",
            "Restore with the release that wrote the snapshot, or a later one.",
        ) from error  # fmt: skip
    if config.format is ValueFormat.TYPED and type_info is not None:
        return TypedValues(type_info, state, operator, trusted)
    plain = (
        TypedDictValues(type_info, state, operator, allow_pickle=True, trusted=trusted)
        if isinstance(type_info, TypedDictTypeInfo)
        else PlainValues(state, operator, allow_pickle=True, trusted=trusted)
    )
    plain.note_pickled(config.pickled)
    return plain


def declared_type(config: SerializerConfig) -> TypeInformation | None:
    """The declared type of values; None = none."""
    return None if config.type_spec is None else TypeInformation.from_spec(config.type_spec)


def _check_version(config: SerializerConfig, operator: str, state: str) -> None:
    known = {
        ValueFormat.TYPED: TYPED_VERSION,
        ValueFormat.PLAIN: PLAIN_VERSION,
        ValueFormat.PICKLE: PLAIN_VERSION,
    }
    if config.version > known[config.format]:
        raise StateMigrationError(
            operator,
            state,
            "",
            f"{config.format.value} values of version {config.version}",
            f"version {known[config.format]} at most",
            "Restore with the release that wrote the snapshot, or a later one.",
        )


def holds_pickles(config: SerializerConfig) -> bool:
    """Whether some of the values are pickled."""
    if config.format is ValueFormat.TYPED:
        return spec_holds_pickles(config.type_spec)
    return bool(config.pickled) or config.format is ValueFormat.PICKLE


def spec_holds_pickles(spec: TypeSpec) -> bool:
    """Whether values of a declared type are pickled, or some inside them."""
    if isinstance(spec, (list, tuple)):
        return any(spec_holds_pickles(part) for part in spec)
    return bool(spec == "PICKLED_BYTE_ARRAY")


class TypedValues:
    """Values of a declared type."""

    def __init__(self, type_info: TypeInformation, state: str, operator: str, trusted: bool) -> None:
        self.type_info = type_info
        self._state = state
        self._operator = operator
        self._rows = serializer_for(type_info)
        self._spec = type_info.to_spec()
        self._refuses = not trusted and spec_holds_pickles(self._spec)
        self._fits = _fit_of(type_info)

    def config(self) -> SerializerConfig:
        """See ValueSerializer."""
        return SerializerConfig(format=ValueFormat.TYPED, version=TYPED_VERSION, type_spec=self._spec)

    def dump_values(self, values: list[Any]) -> bytes:
        """See ValueSerializer."""
        try:
            return self._rows.dump_rows(values)
        except (SerializationError, RowFormatError) as error:
            raise self._misfit(error) from error

    def dump_runs(self, values: list[Any], runs: Sequence[slice]) -> list[bytes]:
        """See ValueSerializer."""
        rows = self._rows
        if isinstance(rows, ColumnarRows):
            try:
                return rows.dump_runs(values, runs)
            except (SerializationError, RowFormatError) as error:
                raise self._misfit(error) from error
        return [self.dump_values(values[run]) for run in runs]

    def dump_places(
        self, values: Sequence[Any], places: npt.NDArray[np.intp], runs: Sequence[slice]
    ) -> list[bytes]:
        """See ValueSerializer. `places`: dtype intp, shape (entries,)."""
        rows = self._rows
        found = rows.dump_places(values, places, runs) if isinstance(rows, TupleRows) else None
        return self.dump_runs([values[at] for at in places.tolist()], runs) if found is None else found

    def _misfit(self, error: Exception) -> StateSerializationError:
        return StateSerializationError(
            f"operator '{self._operator}', state '{self._state}': {error} The state is declared {self.type_info}."
        )

    def load_values(self, data: Buffer) -> list[Any]:
        """See ValueSerializer."""
        if self._refuses:
            raise _untrusted(self._operator, self._state)
        try:
            return self._rows.load_rows(data)
        except SerializationError as error:
            raise self._misfit(error) from error
        except RowFormatError as error:
            raise _unreadable(self._operator, self._state, error) from error

    def dump_value(self, value: Any) -> bytes:
        """See ValueSerializer."""
        if self._fits is not None and self._fits(value):
            try:
                return _ONE + _ENCODER.encode(value)
            except UnicodeEncodeError:
                pass
        return self.dump_values([value])

    def load_value(self, data: Buffer) -> Any:
        """Tests whether a value of a basic type may be written alone: it has exactly the class, and is in range."""
        if data[:1] == _ONE:
            try:
                return _DECODER.decode(memoryview(data)[1:])
            except msgspec.MsgspecError as error:
                raise _unreadable(self._operator, self._state, error) from error
        values = self.load_values(data)
        if len(values) != 1:
            raise _unreadable(self._operator, self._state, f"{len(values)} values where one was expected")
        return values[0]


def _fit_of(type_info: TypeInformation) -> Callable[[Any], bool] | None:
    """Whether a value of a basic type may be written by itself: of exactly its class, and in range."""
    if not isinstance(type_info, BasicTypeInfo):
        return None
    limits = type_info.value_range
    if limits is not None:
        least, most = limits
        return lambda value: type(value) is int and least <= value <= most
    if type_info.tag in ("STRING", "DOUBLE", "BOOLEAN"):
        kind = type_info.python_type
        return lambda value: type(value) is kind
    return None


class PlainValues:
    """Values of no declared type."""

    def __init__(self, state: str, operator: str, allow_pickle: bool, trusted: bool) -> None:
        self._state = state
        self._operator = operator
        self._allow_pickle = allow_pickle
        self._trusted = trusted
        self._pickled: set[str] = set()

    def config(self) -> SerializerConfig:
        """See ValueSerializer."""
        return SerializerConfig(
            format=ValueFormat.PLAIN, version=PLAIN_VERSION, pickled=tuple(sorted(self._pickled))
        )

    def note_pickled(self, types: Sequence[str]) -> None:
        """Notes that pickled values of these types are in a snapshot that may be carried on."""
        self._pickled.update(types)

    def dump_values(self, values: list[Any]) -> bytes:
        """See ValueSerializer."""
        return self._dump(dump_plain, values)

    def dump_runs(self, values: list[Any], runs: Sequence[slice]) -> list[bytes]:
        """See ValueSerializer."""
        if set(map(type, values)) == {type(None)}:
            # Timers without namespaces.
            of_length = {length: self.dump_values([None] * length) for length in set(map(_length, runs))}
            return [of_length[_length(run)] for run in runs]
        return [self.dump_values(values[run]) for run in runs]

    def dump_places(
        self, values: Sequence[Any], places: npt.NDArray[np.intp], runs: Sequence[slice]
    ) -> list[bytes]:
        """See ValueSerializer. `places`: dtype intp, shape (entries,)."""
        return self.dump_runs([values[at] for at in places.tolist()], runs)

    def dump_value(self, value: Any) -> bytes:
        """See ValueSerializer."""
        return self._dump(dump_plain_value, value)

    def _dump(self, dump: Callable[..., bytes], value: Any) -> bytes:
        before = len(self._pickled)
        try:
            data = dump(value, allow_pickle=self._allow_pickle, pickled=self._pickled)
        except UnwritableValueError as error:
            raise StateSerializationError(
                f"operator '{self._operator}', state '{self._state}': {error}. "
                "Declare a type for the state (one of Types.*), or Types.PICKLED_BYTE_ARRAY() to have such values "
                "pickled."
            ) from error
        if len(self._pickled) != before:
            self._log()
        return data

    def _log(self) -> None:
        place = (self._operator, self._state)
        if place not in _logged:
            _logged.add(place)
            _LOG.warning(
                "operator '%s', state '%s': values of %s are pickled; declare a type for them, so that a"
                " changed program can restore them",
                *place,
                ", ".join(sorted(self._pickled)),
            )

    def load_values(self, data: Buffer) -> list[Any]:
        """See ValueSerializer."""
        found: list[Any] = self._load(load_plain, data)
        return found

    def load_value(self, data: Buffer) -> Any:
        """See ValueSerializer."""
        return self._load(load_plain_value, data)

    def _load(self, load: Callable[..., Any], data: Buffer) -> Any:
        try:
            return load(data, trusted=self._trusted)
        except ChangedFieldError as error:
            raise StateMigrationError(
                self._operator, self._state, error.field, error.was, error.now, error.remedy
            ) from error
        except UntrustedValueError as error:
            raise _untrusted(self._operator, self._state) from error
        except ValueError as error:
            raise _unreadable(self._operator, self._state, error) from error


class TypedDictValues(PlainValues):
    """Dicts with declared fields: written as plain values, with the fields beside them."""

    def __init__(
        self, type_info: TypedDictTypeInfo, state: str, operator: str, allow_pickle: bool, trusted: bool
    ) -> None:
        super().__init__(state, operator, allow_pickle, trusted)
        self._type_info = type_info
        self._spec = type_info.to_spec()

    def config(self) -> SerializerConfig:
        """See ValueSerializer."""
        return msgspec.structs.replace(super().config(), type_spec=self._spec)

    def dump_values(self, values: list[Any]) -> bytes:
        """See ValueSerializer."""
        for value in values:
            self._check(value)
        return super().dump_values(values)

    def dump_value(self, value: Any) -> bytes:
        """See ValueSerializer."""
        self._check(value)
        return super().dump_value(value)

    def _check(self, value: Any) -> None:
        if value is not None and not self._type_info.accepts(value):
            raise StateSerializationError(
                f"operator '{self._operator}', state '{self._state}': {value!r:.200} is no {self._type_info}. Set all "
                "its fields and no others, each to a value of its type."
            )


class MigratedValues:
    """Reads an older form, writes the present one."""

    def __init__(self, reader: ValueSerializer, writer: ValueSerializer, convert: Convert | None) -> None:
        self._reader = reader
        self._convert = convert
        self.config = writer.config
        self.dump_values = writer.dump_values
        self.dump_runs = writer.dump_runs
        self.dump_places = writer.dump_places
        self.dump_value = writer.dump_value

    def load_values(self, data: Buffer) -> list[Any]:
        """See ValueSerializer."""
        values = self._reader.load_values(data)
        convert = self._convert
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]

    def load_value(self, data: Buffer) -> Any:
        """See ValueSerializer."""
        value = self._reader.load_value(data)
        return value if value is None or self._convert is None else self._convert(value)


def _length(run: slice) -> int:
    return int(run.stop - run.start)


def _acceptance(type_info: TypeInformation, place: StatePlace) -> Convert:
    """Accepts values that were written without a declared type and belong to the present one."""

    def accepted(value: Any) -> Any:
        if not type_info.accepts(value):
            raise place.error(
                f"a {type(value).__qualname__} of no declared type", type_info,
                "Declare a type that takes all values of the state, or leave it undeclared.",
            )  # fmt: skip
        return value

    return accepted


def _untrusted(operator: str, state: str) -> UntrustedPickleError:
    return UntrustedPickleError(
        f"operator '{operator}', state '{state}': the snapshot holds pickled values, and reading them would run code "
        "from the file. Say that the snapshot is trusted, or declare types and take another savepoint."
    )


def _unreadable(operator: str, state: str, problem: object) -> StateSerializationError:
    return StateSerializationError(
        f"operator '{operator}', state '{state}': its values cannot be read ({problem}). "
        "The snapshot was written by a later release, or is damaged: restore from another one."
    )
