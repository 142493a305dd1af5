"""StoredColumns: the types of the columns that a window operator reads, as state, and how its windows are cut.

Owner: the task thread. A restored subtask may have to fire windows before its first batch, so it must know the types
before. Must not know windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import OperatorContext
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.errors import YarrowError

#: Name of the operator state: the schema of the read columns (IPC bytes) of each subtask that has had a batch.
COLUMNS: Final = "_columnar_window_columns"
#: Key of the schema's metadata: how windows are cut.
_CUT: Final = b"yarrow.windows"


class OtherWindowsError(YarrowError):
    """Restored state was cut into other windows than those of the program."""


class StoredColumns:
    """The types of columns of one subtask in operator state."""

    def __init__(self, context: OperatorContext, cut: str) -> None:
        """`cut` says how windows are cut, in words."""
        self._cut = cut
        self._state = context.operator_state.union_list_state(
            ListStateDescriptor(COLUMNS, Types.PRIMITIVE_ARRAY(Types.BYTE()))
        )
        found = [pa.ipc.read_schema(pa.py_buffer(bytes(data))) for data in self._state.get()]
        #: The schema that a former subtask has left; None = none has had a batch.
        self.restored: pa.Schema | None = found[0] if found else None

    def check(self, restored: pa.Schema, names: Sequence[str], operator: str) -> None:
        """Raises OtherWindowsError unless restored windows were cut as those of the program, and have its columns."""
        missing = [name for name in names if name not in restored.names]
        if missing:
            raise OtherWindowsError(
                f"operator '{operator}': the restored state has the columns {restored.names}, and the program reads"
                f" {missing} as well. Keep keys and aggregates as they were, or give the operator another uid to start"
                " with empty state"
            )
        found = (restored.metadata or {}).get(_CUT, b"").decode()
        if found != self._cut:
            raise OtherWindowsError(
                f"operator '{operator}': the restored state has {found}, and the program has {self._cut}. Keep the"
                " windows as they were, or give the operator another uid to start with empty state"
            )

    def store(self, types: Mapping[str, pa.DataType]) -> None:
        """Puts the types of columns into the state; empty = they are not known."""
        if types:
            schema = pa.schema(
                [pa.field(name, kind) for name, kind in types.items()], {_CUT: self._cut.encode()}
            )
            self._state.update([schema.serialize().to_pybytes()])
