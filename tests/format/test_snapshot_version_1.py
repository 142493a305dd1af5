"""A savepoint in the format of version 1, written once: every later release must read it as it is.

`python -m tests.format.test_snapshot_version_1 FOLDER` wrote it; never write it again.
"""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.support.counting_ids import CountingIdFactory
from yarrow.common.typeinfo import Types
from yarrow.common.types import Row
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor
from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.handles import (
    CheckpointMetadata,
    InlineStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorSubtaskState,
    StateKind,
)
from yarrow.runtime.snapshot.key_columns import split_by_key_group
from yarrow.runtime.snapshot.key_group_form import Run, StateForm, write_key_groups
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.storage import FileSystemSnapshotStorage
from yarrow.runtime.snapshot.value_serializers import value_serializer
from yarrow.runtime.snapshot.worker_file import FileSystemWorkerStorage

FOLDER = Path(__file__).parent / "snapshot-version-1"
GROUPS = KeyGroupRange(0, 127)
ROW = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.BIG_DEC()])
NUMBERS: ListStateDescriptor[int] = ListStateDescriptor("numbers", Types.LONG())
PARTS: ListStateDescriptor[Any] = ListStateDescriptor("parts")
RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.LONG())

#: (name, kind, type of values, type of map keys, time to live) -> entries
STATES: dict[tuple[Any, ...], dict[Any, Any]] = {
    ("count", StateKind.VALUE, Types.LONG(), None, False): {"a": 1, "b": -(2**40), "\u00e4": 0},
    ("latest", StateKind.VALUE, ROW, None, False): {
        1: Row(name="x", amount=Decimal("1.50")), -7: Row(name=None, amount=None)
    },
    ("anything", StateKind.VALUE, None, None, False): {
        ("k", 1): ("plain", 1, None), None: {"set": {1, 2}, "date": dt.date(2024, 2, 29)}, 2.5: 2**70
    },
    ("history", StateKind.LIST, Types.STRING(), None, False): {1: ["x", "y"], 2: []},
    ("by day", StateKind.MAP, Types.DOUBLE(), Types.SQL_DATE(), False): {"a": {dt.date(2024, 1, 1): 0.5}, "b": {}},
    ("sum", StateKind.REDUCING, Types.BIG_INT(), None, True): {"a": (1_700_000_000_000, 2**100)},
    ("event timers", StateKind.TIMERS, None, None, False): {"a": (1000, None), "b": (2000, ("window", 5))},
}  # fmt: skip


def write(folder: str) -> str:
    """Writes the savepoint below `folder`."""
    job_id = JobID("0123456789abcdef" * 2)
    storage = FileSystemSnapshotStorage(folder, job_id, inline_threshold=64, ids=CountingIdFactory())
    location = storage.begin(3, SnapshotKind.SAVEPOINT, folder)
    output = FileSystemWorkerStorage(CountingIdFactory()).open_output(location)
    forms, runs = [], []
    for number, ((name, kind, value_type, map_key, ttl), table) in enumerate(STATES.items()):
        keys = None if kind is not StateKind.MAP else value_serializer(map_key, name, "counting")
        forms.append(StateForm(name, kind, value_serializer(value_type, name, "counting"), keys, ttl))
        parts = split_by_key_group(list(table), 128, list(table.values()))
        runs += [Run(number, group, own, values) for group, (own, values) in parts]
    handle = output.write(write_key_groups(forms, runs))
    keyed = KeyGroupsSnapshot(key_groups=(0, 127), states=tuple(form.meta() for form in forms), handle=handle)
    backend = OperatorStateBackend("counting")
    backend.list_state(NUMBERS).add_all([1, 2, 3])
    backend.union_list_state(PARTS).add({"offset": 5})
    backend.broadcast_state(RULES).put_all({"r": 1})
    operator = backend.snapshot(3).write(output)
    output.close()
    state = OperatorState(
        operator_id=OperatorID("ab" * 16), name="counting", uid="counting-uid", parallelism=1, max_parallelism=128,
        subtasks={0: OperatorSubtaskState(keyed=(keyed,), operator=operator)},
        coordinator=InlineStateHandle(data=b"splits"),
    )  # fmt: skip
    metadata = CheckpointMetadata(
        engine_version="0.1.0", job_id=job_id, job_name="golden", checkpoint_id=3, timestamp_ms=1_700_000_000_000,
        kind=SnapshotKind.SAVEPOINT, operators=(state,),
    )  # fmt: skip
    return storage.complete(location, metadata)


def test_it_is_read_as_it_was_written() -> None:
    opened = open_snapshot(str(FOLDER))
    assert (opened.metadata.checkpoint_id, opened.metadata.kind) == (3, SnapshotKind.SAVEPOINT)
    (operator,) = opened.metadata.operators
    assert (operator.uid, operator.max_parallelism) == ("counting-uid", 128)
    reader = SnapshotReader(opened.directory)
    subtask = operator.subtasks[0]
    restored = RestoredKeyedState(subtask.keyed, GROUPS, reader.read, "counting", trusted=False)
    for (name, kind, value_type, map_key, ttl), table in STATES.items():
        found: dict[Any, Any] = {}
        for run in restored.take(name, kind, value_type, map_key, ttl=ttl):
            found.update(zip(run.keys, run.values, strict=True))
        assert found == table
    assert restored.names() == []
    backend = OperatorStateBackend("counting", subtask.operator, reader.read)
    assert list(backend.list_state(NUMBERS).get()) == [1, 2, 3]
    assert list(backend.union_list_state(PARTS).get()) == [{"offset": 5}]
    assert dict(backend.broadcast_state(RULES).items()) == {"r": 1}
    assert operator.coordinator is not None and reader.read(operator.coordinator) == b"splits"


def test_this_release_writes_the_same_bytes(tmp_path: Path) -> None:
    written = Path(write(str(tmp_path)))
    names = sorted(path.name for path in FOLDER.iterdir())
    assert sorted(path.name for path in written.iterdir()) == names
    for name in names:
        assert (written / name).read_bytes() == (FOLDER / name).read_bytes()


if __name__ == "__main__":
    print(write(sys.argv[1]))
