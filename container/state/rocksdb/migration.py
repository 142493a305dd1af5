"""Migration: checks a restored native state when the program registers it, and rewrites it if its form changed.

Owner: the task thread, before the state's first use. Entries that already have the present form are not
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.rocksdb.database import ColumnFamily
from yarrow.container.state.rocksdb.keys import decode, group_start
from yarrow.container.state.rocksdb.map_store import MapKeys
from yarrow.container.state.rocksdb.values import StateValues
from yarrow.container.state.state_registration import StateRegistration
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.errors import StateMigrationError
from yarrow.runtime.snapshot.handles import SerializerConfig, StateMetaInfo, ValueFormat
from yarrow.runtime.snapshot.value_serializers import (
    MigratedValues,
    ValueSerializer,
    restored_serializer,
    stored_serializer,
    value_serializer,
)

Convert = Callable[[Any], Any]


def stored_values(
    config: SerializerConfig, operator: str, state: str, *, ttl: bool, trusted: bool
) -> StateValues:
    """Reads and writes values in the form of a native checkpoint; `trusted`: pickled ones may be read."""
    return StateValues(stored_serializer(config, operator, state, trusted=trusted), type_of(config), ttl)


def type_of(config: SerializerConfig) -> TypeInformation | None:
    """The declared type of stored values; None = none."""
    return TypeInformation.from_spec(config.type_spec) if config.format is ValueFormat.TYPED else None


class _Renamed:
    """Entries whose keys have changed because the type of the map's keys did."""

    def __init__(self) -> None:
        #: Their former and their present keys.
        self.old: list[bytes] = []
        self.new: set[bytes] = set()


class Migration:
    """Checks one restored state against its registration and rewrites it if needed."""

    def __init__(
        self, operator: str, meta: StateMetaInfo, state: StateRegistration, now_ms: int, *, trusted: bool
    ) -> None:
        """Raises StateMigrationError with the state, and with the field that cannot be converted.

        `trusted`: pickled values of the snapshot may be read; else reading one raises UntrustedPickleError.
        """
        if meta.kind is not state.kind:
            raise StateMigrationError(
                operator, state.name, "", f"{meta.kind.value} state", f"{state.kind.value} state",
                "Declare the state as it was, or give the new state another name.",
            )  # fmt: skip
        if meta.is_by_window is not state.by_window:
            order = {True: "entries by window and key", False: "entries by key"}
            raise StateMigrationError(
                operator, state.name, "", order[meta.is_by_window], order[state.by_window],
                "Restore from a savepoint in the canonical format, which holds both alike.",
            )  # fmt: skip
        self._operator = operator
        self._meta = meta
        self._now_ms = now_ms
        self._trusted = trusted
        self._ttl = state.ttl is not None
        self._value, self._convert_value = self._reading(meta.value, state.value_type)
        self._map_key_type = state.map_key_type
        self._map_key: ValueSerializer | None = None
        self._convert_key: Convert | None = None
        if meta.map_key_form is not None:
            self._map_key, self._convert_key = self._reading(meta.map_key_form, state.map_key_type)
        if state.by_window and self._convert_key is not None:
            raise StateMigrationError(
                operator, state.name, "windows", f"windows of {type_of(meta.map_key_form)}",  # type: ignore[arg-type]
                f"windows of {state.map_key_type}",
                "Declare the windows as they were, or restore from a savepoint in the canonical format.",
            )  # fmt: skip

    @property
    def value_serializer(self) -> ValueSerializer:
        """The serializer of new values."""
        return self._value

    @property
    def map_key_serializer(self) -> ValueSerializer | None:
        """The serializer of new map keys."""
        return self._map_key

    def _reading(
        self, config: SerializerConfig, declared: TypeInformation | None
    ) -> tuple[ValueSerializer, Convert | None]:
        """The new serializer, and a conversion of stored values to the declared type; None = they need none."""
        name = self._meta.name
        found = restored_serializer(config, declared, self._operator, name, trusted=self._trusted)
        if not isinstance(found, MigratedValues):
            return found, None
        stored = stored_serializer(config, self._operator, name, trusted=self._trusted)
        present = value_serializer(declared, name, self._operator)
        return present, lambda value: found.load_value(stored.dump_value(value))

    def run(self, family: ColumnFamily, values: StateValues, groups: KeyGroupRange) -> None:
        """Rewrites the entries whose form has changed; does nothing if none has."""
        meta = self._meta
        if self._convert_value is None and self._convert_key is None and meta.ttl == self._ttl:
            return
        stored = stored_values(meta.value, self._operator, meta.name, ttl=meta.ttl, trusted=self._trusted)
        entries = family.scan(group_start(groups.start), group_start(groups.end + 1))
        renamed = _Renamed()
        family.put_all(self._rewritten(entries, stored, values, renamed))
        if renamed.old:
            # One entry may have got the former key of another.
            family.delete_all(key for key in renamed.old if key not in renamed.new)

    def _rewritten(
        self,
        entries: Iterator[tuple[bytes, bytes]],
        stored: StateValues,
        values: StateValues,
        renamed: _Renamed,
    ) -> Iterator[tuple[bytes, bytes]]:
        form = self._meta.map_key_form
        old_keys = None if form is None else self._stored_map_keys(form)
        new_keys = None if self._map_key is None else MapKeys(self._map_key, self._map_key_type)
        of_map, taken = b"", set[bytes]()
        for database_key, data in entries:
            value = stored.load(data)
            time, bare = value if self._meta.ttl else (self._now_ms, value)
            if self._convert_value is not None and bare is not None:
                bare = self._convert_value(bare)
            written = values.dump((time, bare) if self._ttl else bare)
            if self._convert_key is None or old_keys is None or new_keys is None:
                yield database_key, written
                continue
            _, map_key = decode(database_key)
            prefix = database_key[: len(database_key) - len(map_key)]
            if prefix != of_map:
                of_map, taken = prefix, set()
            new_key = new_keys.dump(self._convert_key(old_keys.load(map_key)))
            if new_key in taken:
                raise StateMigrationError(
                    self._operator, self._meta.name, "keys", "different keys of one map",
                    "a type in which the keys are equal", "Declare the keys as they were.",
                )  # fmt: skip
            taken.add(new_key)
            if new_key != map_key:
                renamed.old.append(database_key)
                renamed.new.add(prefix + new_key)
            yield prefix + new_key, written

    def _stored_map_keys(self, config: SerializerConfig) -> MapKeys:
        serializer = stored_serializer(config, self._operator, self._meta.name, trusted=self._trusted)
        return MapKeys(serializer, type_of(config))
