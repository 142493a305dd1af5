"""LookupTable: what a stage has left, as a table in a user's function of a running stream, refreshed on a schedule.

Owner: the task's thread opens, asks and closes it; a thread of its own reads new versions. That thread swaps whole
versions by one assignment, so the task sees the old one or the new one, never a part.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from yarrow.batch.lookup_version import LookupTableError, LookupVersion, listing_of, read_version
from yarrow.common.metrics import MetricGroup
from yarrow.common.pipelines.stage_data import StageTable, TableFormat, parameters_in
from yarrow.common.types import Row
from yarrow.common.values.schedule import Schedule
from yarrow.datastream.functions import RuntimeContext
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import InvalidProgramError

_log = logging.getLogger(__name__)

#: Most seconds before another try at a version that could not be read.
_RETRY_SECONDS: Final = 60.0
#: Most seconds that `close` waits for a version that is being read.
_CLOSE_SECONDS: Final = 5.0


class LookupTable:
    """The rows of a stage's table by key. A function makes one in its `__init__`, opens it in `open`, and closes it."""

    def __init__(
        self,
        table: StageTable | str,
        key: str | Sequence[str],
        refresh: Schedule,
        clock: Clock | None = None,
    ) -> None:
        """`table` is what a stage leaves, or the folder of Parquet files that it is in; `key` names its columns.

        At the times of `refresh` the folder is looked at, and read if it has changed. Raises InvalidProgramError.
        """
        self._path = path_of(table, "LookupTable")
        self._key = (key,) if isinstance(key, str) else tuple(key)
        if not self._key or not all(isinstance(name, str) and name for name in self._key):
            raise InvalidProgramError(f"LookupTable of {self._path}: {key!r} names no key columns")
        if not isinstance(refresh, Schedule):
            raise InvalidProgramError(
                f"LookupTable of {self._path}: expected a Schedule, as Schedule.every('10 min'), not {refresh!r}"
            )
        self._refresh = refresh
        self._clock = clock
        self._opened: _Opened | None = None

    def open(self, context: RuntimeContext) -> None:
        """Reads the present version. Raises LookupTableError if there is none: the task begins with a whole table."""
        self._opened = _Opened(self._path, self._key, self._refresh, self._clock or SystemClock())
        name = self._path.rstrip("/").rpartition("/")[2]
        self._opened.show(context.get_metrics_group().add_group("lookup", name))
        self._opened.start()

    def get(self, key: Any) -> Row | None:
        """The row of a key, a tuple where the key has several columns; None if there is none."""
        return self.version.get(key)

    @property
    def version(self) -> LookupVersion:
        """The present version; whoever asks it several times gets answers of one version."""
        if self._opened is None:
            raise LookupTableError(
                f"the lookup table of {self._path} is not open: call its open(runtime_context) in the function's open"
            )
        return self._opened.version

    def refresh(self) -> bool:
        """Looks for a new version now; whether there was one. A version that cannot be read leaves the old one."""
        _ = self.version
        assert self._opened is not None
        return self._opened.refresh()

    def close(self) -> None:
        """Ends the refreshes."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __reduce__(self) -> tuple[Callable[..., LookupTable], tuple[Any, ...]]:
        return LookupTable, (self._path, self._key, self._refresh)


def path_of(table: StageTable | str, user: str) -> str:
    """The folder of a table of Parquet files. Raises InvalidProgramError for any other."""
    if isinstance(table, str):
        if not table:
            raise InvalidProgramError(
                f"{user} takes a StageTable or the path of its folder, not an empty text"
            )
        return table
    if not isinstance(table, StageTable):
        raise InvalidProgramError(f"{user} takes a StageTable or the path of its folder, not {table!r}")
    if not table.path:
        raise InvalidProgramError(f"{user}: the table {table.name!r} is temporary: declare it with a path")
    if parameters_in(table.path):
        raise InvalidProgramError(
            f"{user}: the path {table.path} names a parameter of the pipeline: give the path of one run"
        )
    if table.format != TableFormat.PARQUET or table.partition_by:
        what = f"partitioned by {', '.join(table.partition_by)}" if table.partition_by else table.format
        raise InvalidProgramError(
            f"{user}: the table {table.name!r} is {what}: leave it as Parquet without partition_by"
        )
    return table.path


class _Opened:
    """A table between `open` and `close`."""

    def __init__(self, path: str, key: Sequence[str], schedule: Schedule, clock: Clock) -> None:
        """Raises LookupTableError if there is no version."""
        self._path = path
        self._key = key
        self._schedule = schedule
        self._clock = clock
        self._begun = clock.epoch_ms()
        #: When the version was last found to be the present one: epoch ms.
        self._as_of = self._begun
        self.version = read_version(path, key)
        self._versions = 1
        self._failures = 0
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lookup {path}", daemon=True)

    def show(self, group: MetricGroup) -> None:
        """Registers the metrics."""
        group.gauge("rows", lambda: len(self.version))
        group.gauge("memoryBytes", lambda: self.version.memory)
        group.gauge("stalenessMs", lambda: self._clock.epoch_ms() - self._as_of)
        group.gauge("versions", lambda: self._versions)
        group.gauge("failedRefreshes", lambda: self._failures)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_SECONDS)

    def refresh(self) -> bool:
        """See LookupTable."""
        with self._lock:
            try:
                return self._read()
            except Exception as error:
                # Also what nobody foresaw: without its thread the table would grow old, and nobody would say so.
                self._failures += 1
                age = (self._clock.epoch_ms() - self._as_of) // 1000
                _log.warning(
                    "the lookup table %s keeps its version, which is %d s old: %s. It tries again",
                    self._path,
                    age,
                    error,
                )
                return False

    def _read(self) -> bool:
        now = self._clock.epoch_ms()
        is_new = listing_of(self._path) != self.version.listing
        if is_new:
            self.version = read_version(self._path, self._key)
            self._versions += 1
        self._as_of = now
        return is_new

    def _run(self) -> None:
        due = self._begun
        while True:
            now = self._clock.epoch_ms()
            due = self._schedule.next_after(max(due, now), self._begun)
            failures = self._failures
            if self._closed.wait((due - now) / 1000):
                return
            self.refresh()
            while self._failures > failures:
                failures = self._failures
                left = self._schedule.next_after(due, self._begun) - self._clock.epoch_ms()
                if left / 1000 <= _RETRY_SECONDS:
                    break
                if self._closed.wait(_RETRY_SECONDS):
                    return
                self.refresh()
