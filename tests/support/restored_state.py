"""What the steady job finds when it was restored, told in files: a test holds it against the checkpoint.

Owner: functions and readers on their task's thread; `found_state`, `found_splits` wherever the files can be read. The
state of a key is told when an attempt sees the key first: until then nothing can have changed it.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.runtime.fs.whole_files import replace_whole
from yarrow.testing.gated_source import GatedSplit, Input

#: Below the job's folder: a file for each subtask that counts, and one for each reader.
_STATE, _SPLITS = "restored-state", "restored-splits"


class Counting(KeyedProcessFunction[str, Input, Any]):
    """Emits (key, how many, sum) for each row: state and order matter."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen: ValueState[Any] = runtime_context.get_state(
            ValueStateDescriptor("seen", Types.TUPLE([Types.LONG(), Types.LONG()]))
        )

    def process_element(self, value: Input, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        count, total = self._seen.value() or (0, 0)
        count, total = count + 1, total + value[3]
        self._seen.update((count, total))
        yield (value[0], count, value[2])


class TellingCounting(Counting):
    """Counts, and tells the state that it finds for each key in a file of its subtask."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder, _STATE)

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        subtask = runtime_context.get_index_of_this_subtask()
        self._folder.mkdir(parents=True, exist_ok=True)
        # Of the latest attempt: one before it that is not aware of its end writes on to a file without a name.
        number, name = tempfile.mkstemp(dir=self._folder)
        self._file = os.fdopen(number, "w", encoding="utf-8")
        os.replace(name, self._folder / str(subtask))
        self._told: set[str] = set()

    def process_element(self, value: Input, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        key = ctx.get_current_key()
        if key not in self._told:
            self._told.add(key)
            self._file.write(json.dumps([key, self._seen.value()]) + "\n")
            self._file.flush()
        return super().process_element(value, ctx)

    def close(self) -> None:
        self._file.close()


def tell_splits(folder: str, name: str, splits: Iterable[GatedSplit]) -> None:
    """By a reader that starts: the splits that it was restored with. `name` is the reader's own."""
    told = Path(folder, _SPLITS)
    told.mkdir(parents=True, exist_ok=True)
    found = sorted((split.number, split.position) for split in splits)
    replace_whole(told / name, json.dumps(found).encode())


def found_state(folder: str | Path, subtasks: int) -> dict[str, Any]:
    """The state that so many subtasks have found since they were restored last, by key; None where a key had none."""
    found: dict[str, Any] = {}
    for subtask in range(subtasks):
        for line in Path(folder, _STATE, str(subtask)).read_text(encoding="utf-8").splitlines(keepends=True):
            # The last one may be on its way.
            if line.endswith("\n"):
                key, state = json.loads(line)
                assert key not in found, f"two subtasks have seen {key}"
                found[key] = None if state is None else tuple(state)
    return found


def found_splits(folder: str | Path, names: Sequence[str]) -> dict[int, int]:
    """Positions by the number of the split, as readers of these names had them when they started last."""
    told = [json.loads(Path(folder, _SPLITS, name).read_bytes()) for name in names]
    return {number: position for of_reader in told for number, position in of_reader}
