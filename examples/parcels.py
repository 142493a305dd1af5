"""Parcels that go from depot to depot until they are where they belong, and the load of each depot.

python examples/parcels.py

A parcel is handed to the depot next on its way. It comes back as a record until it has arrived, so that each depot
counts each parcel that it handles. A checkpoint holds the parcels that are under way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from yarrow.common import Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from yarrow.datastream.state import ValueState, ValueStateDescriptor

#: The depot to which each depot hands parcels that it cannot deliver.
NEXT = {"Ham": "Han", "Han": "Fra", "Fra": "Mun", "Mun": "Ham"}
#: (number, depot, destination)
PARCELS = [(1, "Ham", "Fra"), (2, "Fra", "Ham"), (3, "Mun", "Mun"), (4, "Han", "Ham")]
PARCEL = Types.TUPLE([Types.INT(), Types.STRING(), Types.STRING()])


class Handle(KeyedProcessFunction[str, Any, Any]):
    """Counts the parcels of a depot; the last field is the count."""

    _handled: ValueState[int]

    def open(self, runtime_context: RuntimeContext) -> None:
        self._handled = runtime_context.get_state(ValueStateDescriptor("handled", Types.INT()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        handled = (self._handled.value() or 0) + 1
        self._handled.update(handled)
        yield (*value, handled)


def main() -> None:
    """Prints each parcel at each depot."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    parcels = env.from_collection(PARCELS, PARCEL).rebalance().map(lambda parcel: parcel, PARCEL)
    way = parcels.iterate()
    handling = Types.TUPLE([Types.INT(), Types.STRING(), Types.STRING(), Types.INT()])
    handled = way.key_by(lambda parcel: parcel[1], Types.STRING()).process(Handle(), handling)
    under_way = handled.filter(lambda parcel: parcel[1] != parcel[2])
    way.close_with(under_way.map(lambda parcel: (parcel[0], NEXT[parcel[1]], parcel[2]), PARCEL))
    handled.map(lambda parcel: f"parcel {parcel[0]} at {parcel[1]}", Types.STRING()).print()
    env.execute("parcels")


if __name__ == "__main__":
    main()
