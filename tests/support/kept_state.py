"""What a checkpoint of the steady job holds, read by the state processor as a user would read it."""

from __future__ import annotations

from typing import Any

from tests.support.steady_rows import COUNTS, NUMBERED
from yarrow.container.operators.sources.source_reader import SPLITS
from yarrow.state_processor import SavepointReader

#: The state of `Counting`.
_STATE = "seen"


def kept_state(path: str) -> dict[str, Any]:
    """State by key."""
    with SavepointReader.read(path) as reader:
        rows = reader.read_keyed_state(COUNTS, _STATE).to_pylist()
    return {row["key"]: tuple(row["value"].values()) for row in rows}


def kept_splits(path: str) -> dict[int, int]:
    """Positions by the number of the split; splits are objects of the program, which is the test's own."""
    with SavepointReader.read(path, trust_pickle=True) as reader:
        rows = reader.read_list_state(NUMBERED, SPLITS).to_pylist()
    return {row["value"]["number"]: row["value"]["position"] for row in rows}
