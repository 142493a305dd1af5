"""The container that a columnar function wants: read from its annotation or from the argument.

Owner: the thread that builds the program. Never imports polars or pandas: a program that annotates with their
types has imported them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import BatchContainer

_BY_CLASS = {
    ("pyarrow", "RecordBatch"): BatchContainer.PYARROW,
    ("pyarrow", "Table"): BatchContainer.PYARROW_TABLE,
    ("polars", "DataFrame"): BatchContainer.POLARS,
    ("pandas", "DataFrame"): BatchContainer.PANDAS,
}


def container_of(
    fn: Callable[[Any], Any], container: BatchContainer | str | None, method: str
) -> BatchContainer:
    """The container: the argument, else that of the first parameter's annotation, else pyarrow.

    Raises InvalidProgramError for an unknown container or an annotation of another type.
    """
    if not callable(fn):
        raise TypeError(f"{method} takes a callable, not {fn!r}")
    if container is not None:
        try:
            return BatchContainer(container)
        except ValueError:
            known = ", ".join(repr(item.value) for item in BatchContainer)
            raise InvalidProgramError(
                f"{method}: there is no container {container!r}; use one of {known}"
            ) from None
    annotation = _annotation(fn)
    if annotation is None:
        return BatchContainer.PYARROW
    found = _BY_CLASS.get(_class_name(annotation))
    if found is None:
        raise InvalidProgramError(
            f"{method}: the batch parameter is annotated with {annotation!r}, which is no container of"
            " columns:"
            " use pyarrow.RecordBatch, pyarrow.Table, polars.DataFrame or pandas.DataFrame,"
            " or say container=..."
        )
    return found


def _annotation(fn: Callable[[Any], Any]) -> Any:
    """The annotation of the first parameter; None where there is none or it is Any."""
    target = fn if inspect.isroutine(fn) else type(fn).__call__
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError:  # a builtin without signature
        return None
    if not parameters or parameters[0].annotation is inspect.Parameter.empty:
        return None
    try:
        annotation = typing.get_type_hints(target).get(parameters[0].name)
    except Exception:  # a name that exists for type checkers only: the text is all there is
        annotation = parameters[0].annotation
    return None if annotation is Any else annotation


def _class_name(annotation: Any) -> tuple[str, str]:
    if isinstance(annotation, str):
        module, _, name = annotation.rpartition(".")
        aliases = {"pa": "pyarrow", "pl": "polars", "pd": "pandas"}
        return aliases.get(module, module), name
    return getattr(annotation, "__module__", "").partition(".")[0], getattr(annotation, "__name__", "")
