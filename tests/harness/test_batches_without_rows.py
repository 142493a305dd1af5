"""A batch of no rows changes nothing, on a backend that reads state ahead as well."""

from __future__ import annotations

import pytest

from yarrow.common.typeinfo import Types
from yarrow.datastream import DataStream
from yarrow.testing.operator_harness import OperatorHarness


def summed(stream: DataStream) -> DataStream:
    return stream.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_batch_of_no_rows_leaves_state_and_results_as_they_are(backend: str) -> None:
    rows = Types.TUPLE([Types.STRING(), Types.LONG()])
    with OperatorHarness(summed, types=[rows], configuration={"state.backend.type": backend}) as harness:
        harness.push()
        harness.push(("a", 1), ("b", 2))
        harness.push()
        harness.push(("a", 4))
        assert harness.output == [("a", 1), ("b", 2), ("a", 5)]
