"""Opens the buffer of a keyed stream: in memory where the state backend keeps all state there, else in its tables.

Owner: the task thread, while an operator is set up. Must not know rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.event_time_order.event_time_buffer import EventTimeBuffer
from yarrow.container.operators.event_time_order.heap_buffer import HeapBuffer
from yarrow.container.operators.event_time_order.keyed_buffer import KeyedBuffer, waiting_tables
from yarrow.container.operators.pair_form import pair_form


def open_buffer(
    context: OperatorContext,
    name: str,
    row_type: TypeInformation | None,
    selector: Callable[[Any], Any],
) -> KeyedBuffer:
    """Opens a buffer with its restored rows. `name`: that of the state. `row_type`: the declared type, or None.

    `selector` gives the keys of rows.
    """
    tables = waiting_tables(context, name, row_type)
    if tables.stores_at_cut:
        return HeapBuffer(context, name, tables, pair_form(row_type, selector), typed=row_type is not None)
    return EventTimeBuffer(context, name, tables)
