"""Which operator runs a spec: each operator registers itself, the registry finds the modules by their packages.

Owner: any thread that builds operators; registering happens while a module is imported. Must not name an operator.
Every package below this one is searched. Those of columns are imported only when a job has columns, since
pyarrow.compute and polars cost memory. An operator that travels with a job is found in the package of its spec.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import msgspec

from yarrow.container.operators.base import Operator
from yarrow.runtime.graph.engine_specs import is_of_engine
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import OperatorSpec, ShippedOperator

_PACKAGE = "yarrow.container.operators"
#: Packages below it that are imported only when no other operator runs a spec.
_ON_DEMAND = frozenset({"columnar"})

_O = TypeVar("_O", bound=type[Operator])
_classes: dict[type[OperatorSpec], type[Operator]] = {}


def runs(*specs: type[OperatorSpec]) -> Callable[[_O], _O]:
    """Decorator of an operator class: it runs these specs, and `Operator.of` makes one of a descriptor.

    Raises TypeError where another class runs one of them.
    """

    def register(operator: _O) -> _O:
        for spec in specs:
            known = _classes.setdefault(spec, operator)
            if known is not operator:
                raise TypeError(
                    f"{spec.__name__} is run by {known.__module__}.{known.__qualname__} and cannot be run by "
                    f"{operator.__module__}.{operator.__qualname__} as well: give one of them a spec of its own"
                )
        return operator

    return register


def import_row_operators() -> None:
    """Imports every operator but those of columns: a process does so before it forks workers."""
    for name in _packages():
        if name not in _ON_DEMAND:
            import_modules(f"{_PACKAGE}.{name}")


def operator_class(spec: OperatorSpec) -> type[Operator]:
    """The class that runs a spec. Raises TypeError where none does, ImportError for modules that are not here."""
    if spec.is_shipped:
        return operator_class(_unpacked(cast(ShippedOperator, spec)))
    kind = type(spec)
    if kind not in _classes:
        import_row_operators()
    if kind not in _classes:
        for name in sorted(_ON_DEMAND):
            import_modules(f"{_PACKAGE}.{name}")
    if kind not in _classes:
        package = _PACKAGE if is_of_engine(kind) else kind.__module__
        raise TypeError(
            f"no operator runs the spec {kind.__name__}: a module beside it, or below {package}, has to register one"
            f" with @runs({kind.__name__})"
        )
    return _classes[kind]


def build_operator(descriptor: OperatorDescriptor) -> Operator:
    """The operator of a descriptor, not set up yet. Raises as `operator_class`."""
    if descriptor.spec.is_shipped:
        unpacked = _unpacked(cast(ShippedOperator, descriptor.spec))
        descriptor = msgspec.structs.replace(descriptor, spec=unpacked)
    return operator_class(descriptor.spec).of(descriptor)


def _unpacked(spec: ShippedOperator) -> OperatorSpec:
    """The spec that travels in another; its package is imported, and with it the operator."""
    import_modules(spec.package)
    kind: type[OperatorSpec] = getattr(importlib.import_module(spec.module), spec.name)
    return msgspec.msgpack.decode(spec.fields, type=kind)


def import_modules(package: str) -> None:
    """Imports a package with the modules right below it, or the single module of that name."""
    for module in pkgutil.iter_modules(getattr(importlib.import_module(package), "__path__", ())):
        if module.name != "__main__":
            importlib.import_module(f"{package}.{module.name}")


def _packages() -> Iterator[str]:
    for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__):
        if module.ispkg:
            yield module.name
