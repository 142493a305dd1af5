"""The canonical form of keyed state: runs of one state and one key group, which every backend writes and reads.

Layout in docs/design/0011-snapshot-format.md. Runs are written and read one by one, so that little is in
memory at once. Runs of other key groups are skipped without being decoded. Owner: the snapshot thread
(writing), the task thread before its first record (reading). It must not know backends, files or hashes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.data.map_keys import map_keys, shown_map_keys
from yarrow.runtime.snapshot.errors import SnapshotFormatError
from yarrow.runtime.snapshot.handles import StateKind, StateMetaInfo
from yarrow.runtime.snapshot.key_columns import (
    dump_keys,
    key_groups_of_column,
    key_runs,
    load_keys,
    numbers_of,
    objects_of,
    order_by_key_group,
)
from yarrow.runtime.snapshot.value_serializers import ValueSerializer, declared_type

MAGIC: Final = b"YKGS"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sB3x")
#: mark, form of the keys, state, key group, entries, bytes of keys, bytes of values
_RUN: Final = struct.Struct("<BBHHIIQ")
_RUN_MARK: Final = 0x52
_END: Final = struct.Struct("<BQ")
_END_MARK: Final = 0x45
_LENGTH: Final = struct.Struct("<Q")
_COUNT: Final = struct.Struct("<I")
#: The length of a map of one entry.
_ONE_EACH: Final = struct.pack("<I", 1)

#: Most entries of a run, and most values of one serializer call: each call holds the interpreter.
MAX_RUN: Final = 50_000
MAX_PART: Final = 50_000
#: Kinds of states whose entries have one value each, unless they have a time to live.
KINDS_OF_ONE_VALUE: Final = (StateKind.VALUE, StateKind.REDUCING, StateKind.AGGREGATING)


class StateForm(msgspec.Struct, frozen=True):
    """The written form of one state: its entries, and the serializers of their parts.

    Values of entries, by kind: VALUE, REDUCING and AGGREGATING a value; LIST a list; MAP a dict; TIMERS a
    pair (timestamp, namespace). With `ttl` each value, element or dict value is a pair (epoch ms of last
    access, value).
    """

    name: str
    kind: StateKind
    value: ValueSerializer
    map_key: ValueSerializer | None = None
    ttl: bool = False

    def meta(self) -> StateMetaInfo:
        """The state's metadata; call it after all its values were written."""
        map_key = None if self.map_key is None else self.map_key.config()
        return StateMetaInfo(
            name=self.name, kind=self.kind, value=self.value.config(), map_key=map_key, ttl=self.ttl
        )


class EncodedRun(NamedTuple):
    """A run as bytes, which can be carried from one snapshot to another."""

    state: int
    key_group: int
    entries: int
    key_form: int
    keys: bytes | memoryview
    values: bytes | memoryview


class TimerValues(NamedTuple):
    """Times and namespaces of timers, whose keys stand beside them."""

    #: Milliseconds: int64, shape (timers,).
    times: npt.NDArray[np.int64]
    #: None = no timer has a namespace.
    namespaces: Sequence[Any] | None


class ValuesByWindow(NamedTuple):
    """The values of keys in windows, whose keys stand beside them: for a map state, each is a map of one window."""

    #: The stored form of each window, and the number of its values, in the order of the values.
    windows: list[Any]
    counts: list[int]
    values: list[Any]

    def maps(self) -> list[dict[Any, Any]]:
        """The same as contents of a map state."""
        windows = np.repeat(objects_of(self.windows), self.counts)
        return [{window: value} for window, value in zip(windows, self.values, strict=True)]


#: The values of keys.
Contents = Sequence[Any] | TimerValues | ValuesByWindow


class Run(NamedTuple):
    """Entries of one state in one key group, from a backend."""

    state: int
    key_group: int
    keys: Sequence[Any]
    values: Sequence[Any]
    #: The run as bytes, if it was encoded together with other runs; then its first key stands for all entries.
    encoded: EncodedRun | None = None


def write_key_groups(
    states: Sequence[StateForm], runs: Iterable[Run], carried: Iterable[EncodedRun] = ()
) -> Iterator[bytes]:
    """The bytes of all runs, piece by piece; `Run.state` counts in `states`.

    `carried` are runs of states without a user in this program; their numbers follow those of `states`.
    """
    yield _HEAD.pack(MAGIC, VERSION)
    number = 0
    for run in runs:
        for encoded in encode_run(states[run.state], run):
            yield from _pieces(encoded)
            number += 1
    for encoded in carried:
        yield from _pieces(encoded)
        number += 1
    yield _END.pack(_END_MARK, number)


def encode_run(form: StateForm, run: Run) -> Iterator[EncodedRun]:
    """A run as bytes, in several where it is long. Raises the errors of the serializers."""
    if run.encoded is not None:
        yield run.encoded
        return
    for start in range(0, len(run.keys), MAX_RUN):
        keys, values = run.keys[start : start + MAX_RUN], run.values[start : start + MAX_RUN]
        key_form, key_bytes = dump_keys(keys)
        yield EncodedRun(
            run.state, run.key_group, len(keys), key_form, key_bytes, dump_contents(form, values)
        )


def divided_runs(
    form: StateForm, state: int, keys: Sequence[Any], values: Contents, max_parallelism: int
) -> Iterator[Run]:
    """Divides canonical keys and their values by key group.

    To encode runs of some hundred entries one by one costs more than their entries do. So up to MAX_PART keys and their
    values are encoded together where the state allows it, and their bytes are divided. Raises the errors of the
    serializers.
    """
    if isinstance(values, ValuesByWindow) and len(keys) > MAX_PART:
        values = values.maps()
    numbers = numbers_of(keys)
    order, places = order_by_key_group(key_groups_of_column(keys, numbers, max_parallelism))
    runs = [run for _, run in places]
    if isinstance(values, TimerValues):
        contents = _timer_contents(form, values, order, runs)
    elif isinstance(values, ValuesByWindow):
        contents = _contents_by_window(form, values, order, runs)
    elif form.kind not in KINDS_OF_ONE_VALUE or form.ttl or len(keys) > MAX_PART:
        ordered_keys, ordered_values = objects_of(keys)[order], objects_of(values)[order]
        # Garbage collections would walk the lists until the last run is written.
        del keys, values
        for group, run in places:
            yield Run(state, group, ordered_keys[run].tolist(), ordered_values[run].tolist())
        return
    else:
        ordered = objects_of(values)[order].tolist()
        contents = list(map(contents_of_part, form.value.dump_runs(ordered, runs)))
        del ordered
    column = (objects_of(keys) if numbers is None else numbers)[order]
    del keys, values
    encoded_keys = key_runs(column, runs)
    for (group, run), (first, key_form, data), content in zip(places, encoded_keys, contents, strict=True):
        encoded = EncodedRun(state, group, run.stop - run.start, key_form, data, content)
        yield Run(state, group, (first,), (), encoded)


def _timer_contents(
    form: StateForm, timers: TimerValues, order: npt.NDArray[np.intp], runs: Sequence[slice]
) -> list[bytes]:
    """Encodes the timers of each run as `dump_contents` does."""
    times = timers.times[order]
    namespaces = [None] * len(times)
    if timers.namespaces is not None:
        namespaces = objects_of(timers.namespaces)[order].tolist()
    parts = form.value.dump_runs(namespaces, runs)
    stamps = [times[run].tobytes() for run in runs]
    return [
        b"".join((_LENGTH.pack(len(stamp)), stamp, contents_of_part(part)))
        for stamp, part in zip(stamps, parts, strict=True)
    ]


def _contents_by_window(
    form: StateForm, content: ValuesByWindow, order: npt.NDArray[np.intp], runs: Sequence[slice]
) -> list[bytes]:
    """Encodes the values of each run, as maps of one window, as `dump_contents` does."""
    assert form.map_key is not None
    windows = shown_map_keys(content.windows, declared_type(form.map_key.config()))
    places = np.repeat(np.arange(len(windows)), content.counts)[order]
    keys = form.map_key.dump_places(windows, places, runs)
    values = form.value.dump_runs(objects_of(content.values)[order].tolist(), runs)
    contents = []
    for run, own_keys, own_values in zip(runs, keys, values, strict=True):
        lengths = _ONE_EACH * (run.stop - run.start)
        parts = _LENGTH.pack(len(lengths)), lengths, contents_of_part(own_keys), contents_of_part(own_values)
        contents.append(b"".join(parts))
    return contents


def _pieces(run: EncodedRun) -> Iterator[bytes]:
    yield _RUN.pack(
        _RUN_MARK, run.key_form, run.state, run.key_group, run.entries, len(run.keys), len(run.values)
    )
    yield bytes(run.keys)
    yield bytes(run.values)


def encoded_runs(data: bytes | memoryview, key_groups: KeyGroupRange) -> Iterator[EncodedRun]:
    """The encoded runs of these key groups. Raises SnapshotFormatError for bytes of another form."""
    view = memoryview(data)
    if len(view) < _HEAD.size or bytes(view[:4]) != MAGIC:
        raise SnapshotFormatError("keyed state does not begin as it should: it is no canonical form")
    if view[4] != VERSION:
        raise SnapshotFormatError(f"keyed state of version {view[4]}: this release reads version {VERSION}")
    at, number = _HEAD.size, 0
    try:
        while view[at] == _RUN_MARK:
            _, key_form, state, group, count, key_size, value_size = _RUN.unpack_from(view, at)
            at += _RUN.size
            middle, end = at + key_size, at + key_size + value_size
            if end > len(view):
                break
            if key_groups.start <= group <= key_groups.end:
                yield EncodedRun(state, group, count, key_form, view[at:middle], view[middle:end])
            at = end
            number += 1
        complete = _END.unpack_from(view, at) == (_END_MARK, number) and at + _END.size == len(view)
    except (struct.error, IndexError):
        complete = False
    if not complete:
        raise SnapshotFormatError(f"keyed state ends or changes its form at byte {at} of {len(view)}")


def decoded_run(form: StateForm, run: EncodedRun) -> tuple[list[Any], list[Any]]:
    """Keys and values of a run. Raises SnapshotFormatError and the errors of the serializers."""
    try:
        keys = load_keys(run.key_form, memoryview(run.keys), run.entries)
        return keys, load_contents(form, memoryview(run.values), run.entries)
    except (ValueError, struct.error) as error:
        raise SnapshotFormatError(f"a run of state '{form.name}' cannot be read: {error}") from error


# ---------------------------------------------------------------------- values


def dump_contents(form: StateForm, values: Sequence[Any]) -> bytes:
    """The values of a run: sections of lengths, map keys, times and values, as far as the state has them."""
    out: list[bytes] = []
    if form.kind is StateKind.LIST or form.kind is StateKind.MAP:
        _put(out, np.fromiter(map(len, values), dtype="<u4", count=len(values)).tobytes())
        if form.kind is StateKind.MAP:
            assert form.map_key is not None
            keys = list(chain.from_iterable(values))
            _put_parts(out, form.map_key, shown_map_keys(keys, declared_type(form.map_key.config())))
            flat = list(chain.from_iterable(value.values() for value in values))
        else:
            flat = list(chain.from_iterable(values))
    else:
        flat = values if isinstance(values, list) else list(values)
    if form.ttl or form.kind is StateKind.TIMERS:
        _put(out, np.fromiter((pair[0] for pair in flat), dtype="<i8", count=len(flat)).tobytes())
        flat = [pair[1] for pair in flat]
    _put_parts(out, form.value, flat)
    return b"".join(out)


def load_contents(form: StateForm, data: memoryview, count: int) -> list[Any]:
    """The values of `dump_contents`."""
    sections = _Sections(data)
    lengths: list[int] | None = None
    flat_keys: list[Any] = []
    total = count
    if form.kind is StateKind.LIST or form.kind is StateKind.MAP:
        lengths = np.frombuffer(sections.take(), dtype="<u4").tolist()
        total = sum(lengths)
        if form.kind is StateKind.MAP:
            assert form.map_key is not None
            flat_keys = map_keys(sections.take_parts(form.map_key))
    times: list[int] | None = None
    if form.ttl or form.kind is StateKind.TIMERS:
        times = np.frombuffer(sections.take(), dtype="<i8").tolist()
    flat = sections.take_parts(form.value)
    sections.end()
    sizes = (count if lengths is None else len(lengths), len(flat), total if times is None else len(times))
    if sizes != (count, total, total) or (flat_keys and len(flat_keys) != total):
        raise ValueError(f"{count} entries of {total} values were announced, {len(flat)} are here")
    if times is not None:
        flat = list(zip(times, flat, strict=True))
    if lengths is None:
        return flat
    if form.kind is StateKind.MAP:
        pairs = zip(flat_keys, flat, strict=True)
        maps = [dict(islice(pairs, length)) for length in lengths]
        if sum(map(len, maps)) != total:
            raise ValueError(
                "different keys of one map are equal in the type that is declared now; declare the keys as"
                " they were"
            )
        return maps
    elements = iter(flat)
    return [list(islice(elements, length)) for length in lengths]


def contents_of_part(values: bytes) -> bytes:
    """The contents of at most MAX_PART entries that have one value each, of the bytes of these values."""
    return b"".join((_COUNT.pack(1), _LENGTH.pack(len(values)), values))


def parts_of_contents(data: memoryview) -> list[memoryview]:
    """The bytes of the values of entries that have one value each, part by part.

    Raises ValueError or struct.error for bytes of another form.
    """
    sections = _Sections(data)
    parts = sections.take_part_bytes()
    sections.end()
    return parts


def _put(out: list[bytes], section: bytes) -> None:
    out.append(_LENGTH.pack(len(section)))
    out.append(section)


def _put_parts(out: list[bytes], serializer: ValueSerializer, values: list[Any]) -> None:
    """Writes values in parts that are small enough for one serializer call each."""
    if len(values) <= MAX_PART:
        out.append(_COUNT.pack(1))
        _put(out, serializer.dump_values(values))
        return
    starts = range(0, len(values), MAX_PART)
    out.append(_COUNT.pack(len(starts)))
    for start in starts:
        _put(out, serializer.dump_values(values[start : start + MAX_PART]))


class _Sections:
    """Reads sections from the front."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self) -> memoryview:
        (length,) = _LENGTH.unpack_from(self._data, self._at)
        start = self._at + _LENGTH.size
        end = start + length
        if end > len(self._data):
            raise ValueError(f"a section of {length} bytes goes beyond the end")
        self._at = end
        return self._data[start:end]

    def take_parts(self, serializer: ValueSerializer) -> list[Any]:
        first, *others = self.take_part_bytes()
        values = serializer.load_values(first)
        for part in others:
            values += serializer.load_values(part)
        return values

    def take_part_bytes(self) -> list[memoryview]:
        (parts,) = _COUNT.unpack_from(self._data, self._at)
        self._at += _COUNT.size
        return [self.take() for _ in range(max(1, parts))]

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes follow the last section")
