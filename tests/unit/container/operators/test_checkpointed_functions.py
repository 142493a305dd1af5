"""CheckpointedFunction and CheckpointListener: when they are called, and what they find after a restore."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

from tests.support.task_environments import task_environment
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.typeinfo import Types
from yarrow.container.operators.base import NOTHING_RESTORED, OperatorContext, RestoredState
from yarrow.container.operators.rows.row_functions import StatelessFunctionOperator
from yarrow.datastream.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
)
from yarrow.datastream.state import (
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import RowFunctionOperator, RowShape
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.testing.operator_harness import OperatorHarness

OPERATOR = OperatorID("a" * 32)


class Buffering(MapFunction[Any, Any], CheckpointedFunction, CheckpointListener):
    """Keeps what it saw in a plain list, and puts that into operator state at checkpoints."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.calls: list[Any] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.kept: ListState[int] = store.get_list_state(ListStateDescriptor("seen", Types.LONG()))
        self.seen = list(self.kept.get())
        self.calls.append(("initialize", context.is_restored(), context.get_restored_checkpoint_id()))

    def open(self, runtime_context: RuntimeContext) -> None:
        self.calls.append("open")

    def map(self, value: Any) -> Any:
        self.seen.append(value)
        return value

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.calls.append(("snapshot", context.get_checkpoint_id()))
        self.kept.update(self.seen)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.calls.append(("complete", checkpoint_id))


class AsksForKeyedState(Buffering):
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        context.get_keyed_state_store()


def opened(function: Any, restored: RestoredState = NOTHING_RESTORED) -> StatelessFunctionOperator:
    environment = task_environment(restored=restored)
    spec = RowFunctionOperator(shape=RowShape.MAP, function=cloudpickle.dumps(function))
    operator = StatelessFunctionOperator("buffering", spec)
    operator.setup(
        OperatorContext.of(environment, OperatorDescriptor(id=OPERATOR, name="buffering", spec=spec))
    )
    operator.open()
    return operator


def test_state_is_initialised_before_open_snapshotted_and_restored() -> None:
    operator = opened(Buffering())
    operator.function.map(1)
    operator.function.map(2)
    operator.snapshot_state(7)
    pending = operator.context.operator_state.snapshot(7)
    operator.function.map(3)
    state = OperatorSubtaskState(operator=pending.write(MemoryOutput()))
    operator.notify_checkpoint_complete(7)
    operator.notify_checkpoint_aborted(8)
    assert operator.function.calls == [
        ("initialize", False, None), "open", ("snapshot", 7), ("complete", 7)
    ]  # fmt: skip
    again = opened(Buffering(), RestoredState(7, {OPERATOR: state}, read_inline))
    assert again.function.seen == [1, 2]
    assert again.function.calls == [("initialize", True, 7), "open"]


class CountsByKey(KeyedProcessFunction[Any, Any, Any], CheckpointedFunction):
    """All keyed state comes from the hook, and none from `open`."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        keyed = context.get_keyed_state_store()
        self.value: ValueState[int] = keyed.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list: ListState[int] = keyed.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map: MapState[int, int] = keyed.get_map_state(
            MapStateDescriptor("map", Types.LONG(), Types.LONG())
        )
        self.reducing: ReducingState[int] = keyed.get_reducing_state(
            ReducingStateDescriptor("reducing", max, Types.LONG())
        )

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        key, number = value
        self.value.update((self.value.value() or 0) + number)
        self.list.add(number)
        self.map.put(number, number)
        self.reducing.add(number)
        yield key, self.value.value(), list(self.list), sorted(self.map), self.reducing.get()

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Keyed state is snapshotted by itself."""


def test_the_hook_gives_keyed_state_of_a_keyed_stream() -> None:
    with OperatorHarness(lambda s: s.key_by(lambda v: v[0]).process(CountsByKey())) as harness:
        harness.push(("a", 1), ("b", 5), ("a", 2))
        assert harness.output == [
            ("a", 1, [1], [1], 1),
            ("b", 5, [5], [5], 5),
            ("a", 3, [1, 2], [1, 2], 2),
        ]


def test_keyed_state_without_keys_is_refused_by_name() -> None:
    with pytest.raises(InvalidProgramError, match="operator 'buffering': keyed state needs a keyed stream"):
        opened(AsksForKeyedState())


def test_other_functions_are_left_alone() -> None:
    operator = opened(abs)
    operator.snapshot_state(1)
    operator.notify_checkpoint_complete(1)
    assert operator.context.operator_state.snapshot(1).write(MemoryOutput()) == ()
