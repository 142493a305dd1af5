"""TransformedTimers: the timers of an existing savepoint's operator as a table, changed by a function, written again.

Owner: the calling thread. The table is in memory once. It must not know the operator's states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.state.backend import Timer
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.snapshot.handles import KeyGroupsSnapshot, OperatorState
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_tables import DOMAIN, KEY, NAMESPACE, TIMESTAMP, TimersTable
from yarrow.state_processor.keyed_writing import write_timers
from yarrow.state_processor.stored_state import CanonicalPart, kept_evidence
from yarrow.state_processor.table_cells import changed_keys, column_of
from yarrow.state_processor.transformed_state import changed_table, unchanged_values


@dataclass(frozen=True, slots=True)
class TransformedTimers:
    """A change of the timers of an operator."""

    function: Callable[[pa.Table], pa.Table]
    #: The type of the keys that the function makes; None = as they were.
    key_type: TypeInformation | None = None

    def write(
        self,
        operator: OperatorState,
        parts: Sequence[CanonicalPart],
        output: SnapshotOutput,
        *,
        trusted: bool,
    ) -> Iterator[KeyGroupsSnapshot]:
        """Reads, changes and writes the timers of each time domain.

        Raises StateProcessorError, SnapshotError.
        """
        source = TimersTable(operator.name, parts, trusted=trusted)
        changed = changed_table(self.function, source.table(), f"operator '{operator.name}', timers")
        for name, timers in self._sections(changed, source, operator.name).items():
            if timers:
                evidence = kept_evidence(self.key_type, parts, source.names)
                yield write_timers(name, timers, operator.max_parallelism, output, evidence)

    def _sections(self, table: pa.Table, source: TimersTable, operator: str) -> dict[str, set[Timer]]:
        """The timers of each section; a timer that comes twice counts once."""
        what = f"operator '{operator}', timers"
        keys = changed_keys(column_of(table, KEY, what), what, source.key_shape, self.key_type)
        namespaces = unchanged_values(column_of(table, NAMESPACE, what), source.namespace_shape, what)
        timestamps = column_of(table, TIMESTAMP, what)
        if not pa.types.is_integer(timestamps.type) or timestamps.null_count:
            raise StateProcessorError(
                f"{what}: expected integers without nulls (milliseconds) in '{TIMESTAMP}', not {timestamps.type} with "
                f"{timestamps.null_count} nulls"
            )
        names = {domain: name for name, domain in source.domains.items()}
        sections: dict[str, set[Timer]] = {}
        rows = zip(
            column_of(table, DOMAIN, what).to_pylist(), timestamps.to_pylist(), keys, namespaces, strict=True
        )
        for domain, timestamp, key, namespace in rows:
            if domain not in names:
                raise StateProcessorError(
                    f"{what}: '{DOMAIN}' is one of {sorted(names)}, not {domain!r} (key {key!r:.200})"
                )
            timer = Timer(timestamp, canonicalize(key), namespace)
            sections.setdefault(names[domain], set()).add(timer)
        return sections
