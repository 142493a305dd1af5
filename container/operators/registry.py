"""The registry of operators by spec: operators register themselves, and the registry finds modules by package.

Owner: any thread that builds operators; registering happens while a module is imported. Must not name an operator.
Every package below this one is searched. The columnar ones are imported only when a job has columns, since
pyarrow.compute and polars cost memory. Those of data sets, windows, joins, patterns, loops, rows in event-time order
and asynchronous functions are imported only when a job has some. An operator that is shipped with a job is found in
the package of its spec.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import msgspec

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.container.operators.base import Operator, declared_type
from yarrow.runtime.graph.engine_specs import is_of_engine
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import OperatorSpec, ShippedOperator

_PACKAGE = "yarrow.container.operators"
#: Packages that are imported only if no other operator runs a spec, one after the other.
_ON_DEMAND = ("data_set", "columnar")
#: Packages that are imported only for specs that name them: most jobs do without, and one of them imports asyncio.
_NAMED = (
    "asynchronous", "cep", "columnar_join", "columnar_pattern", "columnar_window", "event_time_order",
    "guarded_columnar_pattern", "guarded_pattern", "guarded_window", "join", "loop", "pre_aggregation",
    "sliced_window", "window",
)  # fmt: skip

_O = TypeVar("_O", bound=type[Operator])
_classes: dict[type[OperatorSpec], type[Operator]] = {}


def runs(*specs: type[OperatorSpec]) -> Callable[[_O], _O]:
    """Decorates an operator class that runs these specs; `Operator.of` makes it from a descriptor.

    Raises TypeError if another class runs one of them.
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
    """Imports every operator but those on demand; a process does so before it forks workers."""
    for name in _packages():
        if name not in (*_ON_DEMAND, *_NAMED):
            import_modules(f"{_PACKAGE}.{name}")


def operator_class(spec: OperatorSpec) -> type[Operator]:
    """The class that runs a spec. Raises TypeError if there is none, ImportError for missing modules."""
    if spec.is_shipped:
        return operator_class(_unpacked(cast(ShippedOperator, spec)))
    kind = type(spec)
    if kind not in _classes:
        import_row_operators()
    for name in (kind.operator_package,) if kind.operator_package else _ON_DEMAND:
        if kind not in _classes:
            import_modules(f"{_PACKAGE}.{name}")
    if kind not in _classes:
        package = _PACKAGE if is_of_engine(kind) else kind.__module__
        raise TypeError(
            f"no operator runs the spec {kind.__name__}: a module beside it, or below {package}, has to register one"
            f" with @runs({kind.__name__})"
        )
    return _classes[kind]


def build_operator(descriptor: OperatorDescriptor, *, bounded: bool = False) -> Operator:
    """The operator of a descriptor, not set up yet; raises the errors of `operator_class`.

    `bounded`: the keys of bounded input come one after the other.
    """
    if descriptor.spec.is_shipped:
        unpacked = _unpacked(cast(ShippedOperator, descriptor.spec))
        descriptor = msgspec.structs.replace(descriptor, spec=unpacked)
    elif bounded:
        descriptor = msgspec.structs.replace(descriptor, spec=descriptor.spec.for_bounded_input)
    # The readers of a source treat errors by themselves.
    leaves_out = descriptor.errors.policy is not ErrorPolicy.FAIL and not descriptor.spec.is_source
    if leaves_out:
        descriptor = msgspec.structs.replace(descriptor, spec=descriptor.spec.for_left_out_records)
    operator = operator_class(descriptor.spec).of(descriptor)
    if leaves_out:
        # Most processes have no such operator.
        from yarrow.container.operators.failed_records import FailedRecords

        types = tuple(declared_type(each) for each in descriptor.input_types)
        uid = descriptor.spec.letters_uid or descriptor.uid or descriptor.id
        inputs = descriptor.spec.leaves_out
        operator.leave_out_by(FailedRecords(operator.name, uid, descriptor.errors, inputs, types))
    return operator


def _unpacked(spec: ShippedOperator) -> OperatorSpec:
    """The spec inside a shipped one; imports its package and thus the operator."""
    import_modules(spec.package)
    kind: type[OperatorSpec] = getattr(importlib.import_module(spec.module), spec.name)
    return msgspec.msgpack.decode(spec.fields, type=kind)


def import_modules(package: str) -> None:
    """Imports a package with its direct modules, or the single module of that name."""
    for module in pkgutil.iter_modules(getattr(importlib.import_module(package), "__path__", ())):
        if module.name != "__main__":
            importlib.import_module(f"{package}.{module.name}")


def _packages() -> Iterator[str]:
    for module in pkgutil.iter_modules(importlib.import_module(_PACKAGE).__path__):
        if module.ispkg:
            yield module.name
