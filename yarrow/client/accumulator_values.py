"""Values of accumulators as a program gets them: those whose class merges in its own way are merged here.

Owner: any thread; pure. A merge that fails gives its reason in place of the value, as the master does. Nothing that is
read here runs code: the program has the class of the accumulator, or the value is not merged.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from yarrow.runtime.common.accumulators import UnmergedPart, unmerged_parts


def merged_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by name, each of one accumulator."""
    return {name: _merged(name, value) for name, value in values.items()}


def _merged(name: str, value: Any) -> Any:
    parts = unmerged_parts(value)
    if parts is None:
        return value
    try:
        first, *others = [_accumulator(part) for part in parts]
        for other in others:
            first.merge(other)
        return first.get_local_value()
    except Exception as error:  # merge is code of the program
        return f"not merged: the accumulator {name!r} of class {parts[0].class_name}: {error}"


def _accumulator(part: UnmergedPart) -> Any:
    # Imported late: most jobs have no such accumulator.
    import yarrow.common.accumulators  # noqa: F401 - its classes are found among the loaded ones
    from yarrow.runtime.data.key_classes import loaded_class
    from yarrow.runtime.snapshot.plain_values import load_plain

    if part.reason:
        raise ValueError(part.reason)
    (accumulator,) = load_plain(base64.b64decode(part.encoded), resolve=loaded_class)
    return accumulator
