"""An operator with two columnar inputs, in two files: here its spec and how a program puts it behind two streams.

It joins record batches of facts with the row of a table that has their key. No list names it.
"""

from __future__ import annotations

import pyarrow as pa

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.columnar_keyed_stream import ColumnarKeyedStream
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.program.arrow_schemas import read_schema, schema_bytes, type_of_values
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import KeyColumns, OperatorSpec, StreamKind


class LookupJoin(OperatorSpec, frozen=True, kw_only=True, tag="lookup_join"):
    """Puts the columns of a table behind those of facts. Facts wait for the row that has their key."""

    fact_keys: KeyColumns
    table_keys: KeyColumns
    #: IPC bytes of the facts, of what the table adds, and of both.
    facts: bytes
    added: bytes
    schema: bytes

    @property
    def emitted_schema(self) -> bytes:
        return self.schema


def looked_up(facts: ColumnarKeyedStream, table: ColumnarKeyedStream) -> DataStream:
    """Return the facts with the columns of the table behind them; both streams have a known schema."""
    of_facts, of_table = (
        read_schema(stream.transformation.output_schema or b"") for stream in (facts, table)
    )
    keys = (table.key_column,) if isinstance(table.key_column, str) else table.key_column
    added = [field for field in of_table if field.name not in keys]
    environment = facts.get_execution_environment()
    schema = schema_bytes(pa.schema([*of_facts, *added]))
    spec = LookupJoin(
        fact_keys=facts.key_column,
        table_keys=table.key_column,
        facts=schema_bytes(of_facts),
        added=schema_bytes(pa.schema(added)),
        schema=schema,
    )
    made = environment.graph_builder.two_input(
        facts.transformation,
        table.transformation,
        "Lookup",
        spec,
        output_kind=StreamKind.COLUMNAR,
        output_schema=schema,
        state_key_type=facts.key_type,
    )
    return DataStream(environment, made)


def row_type(schema: pa.Schema) -> TypeInformation:
    """The type of the schema's rows in state. Raises InvalidProgramError for a column that has none."""
    types = [type_of_values(field.type) for field in schema]
    if None in types:
        raise InvalidProgramError(f"the column {schema.names[types.index(None)]!r} has no type for state")
    return Types.ROW([each for each in types if each is not None])
