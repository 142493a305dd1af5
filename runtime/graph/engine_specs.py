"""All specs of the engine, found in the modules of this package whose names end in `_spec`.

Owner: none; runs once, when a process imports the JobGraph. Must not import operators.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Union

from yarrow.runtime.graph.operator_spec import OperatorSpec

_PACKAGE = __name__.rpartition(".")[0]


def any_engine_spec() -> Any:
    """The union of the engine's specs, from which msgspec finds the class of an encoded spec by its tag."""
    for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__):
        if module.name.endswith("_spec"):
            importlib.import_module(f"{_PACKAGE}.{module.name}")
    return Union[tuple(kind for kind in _below(OperatorSpec) if is_of_engine(kind))]  # noqa: UP007


def is_of_engine(kind: type[OperatorSpec]) -> bool:
    """Whether the spec is the engine's own; all others are sent as ShippedOperator."""
    return kind.__module__.rpartition(".")[0] == _PACKAGE


def _below(kind: type[OperatorSpec]) -> Iterator[type[OperatorSpec]]:
    for found in kind.__subclasses__():
        yield found
        yield from _below(found)
