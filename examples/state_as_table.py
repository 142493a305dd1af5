"""State as a table: a savepoint made of a table, read, changed, and continued, without a cluster.

python examples/state_as_table.py            makes a savepoint of its own
python examples/state_as_table.py SAVEPOINT  shows what is in any savepoint or retained checkpoint

The history of some accounts becomes the state of a job that has never run; `yarrow run -s PATH job.py` would begin with
it. Every state is a pyarrow Table with the columns `key` and `value`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, ValueStateDescriptor
from yarrow.state_processor import (
    OperatorTransformation,
    SavepointEnvironment,
    SavepointReader,
    SavepointWriter,
)

HISTORY = pa.table({"account": ["ann", "bob", "cid"], "balance": [1000, 500, -20]})
BALANCE: ValueStateDescriptor[int] = ValueStateDescriptor("balance", Types.LONG())


class Balances(KeyedProcessFunction[str, Any, tuple[str, int]]):
    """The operator that goes on with the state."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.balance = runtime_context.get_state(BALANCE)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        account, amount = value
        balance = (self.balance.value() or 0) + amount
        self.balance.update(balance)
        yield account, balance


def show(path: str) -> None:
    """Every state of a savepoint."""
    with SavepointReader.read(path) as reader:
        for operator in reader.operators():
            identifier = operator.uid or operator.operator_id
            print(f"{operator.name} ({identifier}): {operator.size} bytes")
            for state in reader.states(operator.uid or operator.operator_id):
                print(f"  {state.name}: {state.kind} of {state.type}, {state.entries} entries")
                if state.keyed and state.kind != "timers" and not state.pickled:
                    table = reader.read_keyed_state(identifier, state.name)
                    for row in table.slice(0, 5).to_pylist():
                        print(f"    {row}")


def demonstration(folder: str) -> list[tuple[str, int]]:
    """From a table to a savepoint, a changed savepoint, and an operator that goes on from it."""
    rows = OperatorTransformation.bootstrap_with(HISTORY).key_by("account")
    writer = SavepointWriter.new_savepoint(max_parallelism=128)
    made = writer.with_operator("balances", rows.to_state(BALANCE, "balance")).write(f"{folder}/made")
    show(made)

    def with_interest(table: pa.Table) -> pa.Table:
        owed = table.filter(pc.greater(table["value"], 0))
        return owed.set_column(1, "value", pc.cast(pc.multiply(owed["value"], 1.02), pa.int64(), safe=False))

    changes = SavepointWriter.from_existing_savepoint(made)
    changed = changes.transform_state("balances", "balance", with_interest).write(f"{folder}/changed")
    show(changed)

    def job(payments: Any) -> Any:
        return payments.key_by(lambda row: row[0], Types.STRING()).process(Balances()).uid("balances")

    with SavepointEnvironment(job, changed) as environment:
        environment.push([("ann", 5), ("cid", 5)])
        balances: list[tuple[str, int]] = environment.take()
    print(balances)
    return balances


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Shows the state in a savepoint.")
    parser.add_argument("savepoint", nargs="?", help="a savepoint or retained checkpoint")
    path = parser.parse_args().savepoint
    if path:
        show(path)
    else:
        with tempfile.TemporaryDirectory() as folder:
            demonstration(folder)
