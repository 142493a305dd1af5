"""Job graphs and states that were stored name classes by their module: these names load for good."""

from __future__ import annotations

import pickle

import pytest

from yarrow.common.typeinfo import Types

NAMES = [
    "yarrow.common.typeinfo _from_spec",
    "yarrow.datastream.async_retry_strategies FixedDelayRetryStrategy",
    "yarrow.datastream.functions NullByteKeySelector",
    "yarrow.datastream.state AggregatingStateDescriptor",
    "yarrow.datastream.state ListStateDescriptor",
    "yarrow.datastream.state MapStateDescriptor",
    "yarrow.datastream.state ReducingStateDescriptor",
    "yarrow.datastream.state StateTtlConfig",
    "yarrow.datastream.state ValueStateDescriptor",
    "yarrow.datastream.state _CallableReduceFunction",
    "yarrow.datastream.time_domain TimeDomain",
    "yarrow.datastream.window_assigner _FixedGap",
    "yarrow.datastream.window_trigger Trigger",
    "yarrow.datastream.window_trigger TriggerResult",
    "yarrow.datastream.window_trigger _add",
    "yarrow.datastream.window_trigger _earlier",
]


@pytest.mark.parametrize("stored", NAMES)
def test_stored_name_loads(stored: str) -> None:
    module, name = stored.split()
    assert pickle.loads(f"c{module}\n{name}\n.".encode()).__name__ == name


def test_types_are_stored_by_the_name_that_older_versions_know() -> None:
    assert b"yarrow.common.typeinfo" in pickle.dumps(Types.LIST(Types.LONG()))
