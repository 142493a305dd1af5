"""ShippedOperators: the form of specs outside of the engine, so that only workers import their modules.

Owner: the thread that builds the program. The master and the TaskExecutor decode only the ShippedOperator:
they never import modules of a job. Must not import operators.
"""

from __future__ import annotations

import sys

import msgspec

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import OperatorSpec, ShippedOperator

#: Abilities that the master would have to know, and a ShippedOperator does not tell.
_ENGINE_ALONE = tuple(sorted(name for name, value in vars(OperatorSpec).items() if isinstance(value, bool)))


def shipped(spec: OperatorSpec, operator: str) -> ShippedOperator:
    """The shipped form of a spec that is not the engine's.

    Raises InvalidProgramError with `operator` if workers could not import the module of the spec. It also
    raises it if the spec claims an ability that only the engine's operators have.
    """
    kind = type(spec)
    if kind.__module__ in ("__main__", "__mp_main__") or "." in kind.__qualname__:
        raise InvalidProgramError(
            f"Operator {operator!r}: workers cannot import its spec {kind.__qualname__} of module"
            f" {kind.__module__}. Put the spec and its operator into a package, and ship that with"
            " add_python_file (-pyfs)."
        )
    claimed = [name for name in _ENGINE_ALONE if getattr(spec, name) != getattr(OperatorSpec, name)]
    if claimed or spec.collects_for is not None:
        raise InvalidProgramError(
            f"Operator {operator!r}: its spec {kind.__qualname__} declares {(claimed or ['collects_for'])[0]}, which"
            " operators of the engine alone can: use a Source or Sink of the API in its place."
        )
    try:
        fields = msgspec.msgpack.encode(spec)
    except TypeError as error:
        raise InvalidProgramError(
            f"Operator {operator!r}: its spec {kind.__qualname__} cannot be sent to the workers: {error}. Keep what is"
            " no number, text, bytes or struct as cloudpickle bytes (graph_builder.pickle)."
        ) from None
    return ShippedOperator(
        package=_package_of(kind.__module__),
        module=kind.__module__,
        name=kind.__qualname__,
        fields=fields,
        schema=spec.emitted_schema,
    )


def _package_of(module: str) -> str:
    """The package with the modules of spec and operator: the spec's own, or the module if it stands alone."""
    if hasattr(sys.modules[module], "__path__"):
        return module
    return module.rpartition(".")[0] or module
