"""A savepoint that holds the types of keys, written once: every later release must read it, and compare them.

`python -m tests.format.test_key_types_version_1 FOLDER` wrote it; never write it again. Those of all-kinds-version-1
and snapshot-version-1 were written before there were types of keys: they are compared with nothing.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.format.golden_snapshots import CHECKPOINT, SAVEPOINT
from yarrow.common import Row, TypeInformation, Types
from yarrow.datastream import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueStateDescriptor
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.opening import open_snapshot
from yarrow.state_processor import (
    KeyedStateBootstrapFunction,
    OperatorTransformation,
    SavepointEnvironment,
    SavepointReader,
    SavepointWriter,
)

FOLDER = Path(__file__).parent / "key-types-version-1"
TOTAL: ValueStateDescriptor[int] = ValueStateDescriptor("total", Types.LONG())
DUE = 7_258_118_400_000
LONG, STRING = Types.LONG(), Types.STRING()
NAMED = Types.ROW_NAMED(["name", "number"], [STRING, LONG])
PAIR = Types.TUPLE([STRING, Types.INT()])

#: uid -> (declared type, keys, what a type of keys that fits is, what one that does not)
OPERATORS: dict[str, tuple[TypeInformation | None, list[Any], TypeInformation, TypeInformation | None]] = {
    "texts": (STRING, ["a", "ä"], Types.CHAR(), LONG),
    "numbers": (Types.INT(), [1, -7], Types.DOUBLE(), STRING),
    "pairs": (PAIR, [("a", 1), ("b", 2)], Types.TUPLE([STRING, LONG]), Types.TUPLE([STRING, STRING])),
    "rows": (
        NAMED,
        [Row(name="a", number=1)],
        Types.ROW([STRING, LONG]),
        Types.ROW_NAMED(["word", "number"], [STRING, LONG]),
    ),
    "undeclared": (None, ["a", 1], LONG, None),
}


class Fill(KeyedStateBootstrapFunction[Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> None:
        self._total.update(value[1])
        ctx.timer_service().register_processing_time_timer(DUE)


class Tell(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(TOTAL)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield self._total.value()


def key_of(row: Any) -> Any:
    return row[0]


def write(path: str) -> None:
    writer = SavepointWriter.new_savepoint(16)
    for uid, (declared, keys, _, _) in OPERATORS.items():
        rows = [(key, number) for number, key in enumerate(keys)]
        made = OperatorTransformation.bootstrap_with(rows).key_by(key_of, declared).transform(Fill())
        writer.with_operator(uid, made)
    writer.write(path)


@pytest.fixture
def golden(tmp_path: Path) -> str:
    shutil.copytree(FOLDER, tmp_path / "golden")
    return str(tmp_path / "golden")


def totals(path: str, uid: str, key_type: TypeInformation | None, backend: str) -> list[Any]:
    def fragment(rows: Any) -> Any:
        return rows.key_by(key_of, key_type).process(Tell()).uid(uid)

    keys = OPERATORS[uid][1]
    with SavepointEnvironment(fragment, path, configuration={"state.backend.type": backend}) as running:
        running.push([(key, 0) for key in keys])
        return running.take()


def test_what_it_says_of_keys(golden: str) -> None:
    with SavepointReader.read(golden) as reader:
        told = {operator.uid: operator.key_type for operator in reader.operators()}
        assert told == {uid: declared for uid, (declared, _, _, _) in OPERATORS.items()}
        assert reader.read_timers("rows").column("timestamp").to_pylist() == [DUE]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("uid", OPERATORS)
def test_programs_whose_keys_are_the_same_are_restored_and_no_others(
    golden: str, uid: str, backend: str
) -> None:
    declared, keys, fitting, other = OPERATORS[uid]
    for key_type in (declared, fitting, None):
        assert totals(golden, uid, key_type, backend) == list(range(len(keys)))
    if other is not None:
        with pytest.raises(SavepointMismatchError, match=r"operator 'KeyedProcess'.*keys of type"):
            totals(golden, uid, other, backend)


@pytest.mark.parametrize("path", [SAVEPOINT / "savepoint", next((CHECKPOINT / "checkpoints").glob("chk-*"))])
def test_what_was_written_before_says_nothing_of_keys(path: Path) -> None:
    operators = open_snapshot(str(path), verify=False).metadata.operators
    keyed = [
        handle for operator in operators for subtask in operator.subtasks.values() for handle in subtask.keyed
    ]
    assert keyed and {type(handle.key_type) for handle in keyed} == {type(UNSET)}


if __name__ == "__main__":
    write(sys.argv[1])
