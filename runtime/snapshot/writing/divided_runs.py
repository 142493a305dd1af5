"""Divides entries of keyed state by key group, and encodes the runs of a piece together.

Owner: the snapshot thread, except in tests. To encode runs of some dozen entries one by one costs more than their
entries do. So keys and values of a piece are encoded in a few calls, and their bytes are divided. The bytes are those
of `key_group_form.encode_run`. It must not know backends or files.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from yarrow.runtime.data.map_keys import shown_map_keys
from yarrow.runtime.snapshot.key_columns import (
    INT64,
    Numbers,
    Objects,
    dump_keys,
    key_groups_of_column,
    numbers_of,
    objects_of,
    order_by_key_group,
)
from yarrow.runtime.snapshot.key_group_form import (
    KINDS_OF_ONE_VALUE,
    MAX_PART,
    EncodedRun,
    Run,
    StateForm,
    contents_of_part,
)
from yarrow.runtime.snapshot.value_serializers import declared_type

_LENGTH: Final = struct.Struct("<Q")
_ONE: Final = struct.pack("<I", 1)
_NUMBER_BYTES: Final = 8


class TimerValues(NamedTuple):
    """Times and namespaces of timers, whose keys stand beside them."""

    #: Milliseconds: int64, shape (timers,).
    times: npt.NDArray[np.int64]
    #: None = no timer has a namespace.
    namespaces: Sequence[Any] | None


class ValuesByWindow(NamedTuple):
    """The values of keys in windows, whose keys stand beside them: for a map state, each is a map of one window."""

    #: What each window is stored as, and how many of the values it has, one window after the other.
    windows: list[Any]
    counts: list[int]
    values: list[Any]

    def maps(self) -> list[dict[Any, Any]]:
        """The same as contents of a map state."""
        windows = np.repeat(objects_of(self.windows), self.counts)
        return [{window: value} for window, value in zip(windows, self.values, strict=True)]


#: The values of keys.
Contents = Sequence[Any] | TimerValues | ValuesByWindow


def divided_runs(
    form: StateForm, state: int, keys: Sequence[Any], values: Contents, max_parallelism: int
) -> Iterator[Run]:
    """Divides canonical keys and their values by key group.

    Up to MAX_PART keys and their values are encoded together where the state allows it. Raises the errors of the
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
    encoded_keys = _key_runs(column, runs)
    for (group, run), (first, key_form, data), content in zip(places, encoded_keys, contents, strict=True):
        encoded = EncodedRun(state, group, run.stop - run.start, key_form, data, content)
        yield Run(state, group, (first,), (), encoded)


def _key_runs(column: Numbers | Objects, runs: Sequence[slice]) -> Iterator[tuple[Any, int, bytes]]:
    """The first key of each run, the form of its keys and their bytes.

    `column`: the keys by key group, shape (keys,); int64 if all are ints of 64 bits, else dtype object.
    """
    if column.dtype == np.object_:
        for run in runs:
            yield column[run.start], *dump_keys(column[run].tolist())
        return
    packed, firsts = column.tobytes(), column[[run.start for run in runs]].tolist()
    for first, run in zip(firsts, runs, strict=True):
        yield first, INT64, packed[run.start * _NUMBER_BYTES : run.stop * _NUMBER_BYTES]


def _timer_contents(
    form: StateForm, timers: TimerValues, order: npt.NDArray[np.intp], runs: Sequence[slice]
) -> list[bytes]:
    """What `dump_contents` gives of each run of timers."""
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
    """What `dump_contents` gives of each run of maps of one window."""
    assert form.map_key is not None
    windows = shown_map_keys(content.windows, declared_type(form.map_key.config()))
    places = np.repeat(np.arange(len(windows)), content.counts)[order]
    keys = form.map_key.dump_places(windows, places, runs)
    values = form.value.dump_runs(objects_of(content.values)[order].tolist(), runs)
    contents = []
    for run, own_keys, own_values in zip(runs, keys, values, strict=True):
        lengths = _ONE * (run.stop - run.start)
        parts = _LENGTH.pack(len(lengths)), lengths, contents_of_part(own_keys), contents_of_part(own_values)
        contents.append(b"".join(parts))
    return contents
