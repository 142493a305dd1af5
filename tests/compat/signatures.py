"""Compares one name of PyFlink's API, as recorded, with the same name of Yarrow.

A call that is valid in PyFlink must be valid here and mean the same. So parameters keep name, order and
default; Yarrow may add optional ones at the end and make a required one optional.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from tests.compat.exclusions import JAVA_PARAMETER_PREFIX

Recorded = dict[str, Any]

_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def class_differences(name: str, recorded: Recorded, actual: object) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, difference) for a class and everything in it."""
    if not inspect.isclass(actual):
        yield name, f"is not a class but {actual!r}"
        return
    if "members" in recorded:
        yield from _member_differences(name, recorded["members"], actual)
    if recorded.get("init") is not None and not _needs_java_object(recorded["init"]):
        difference = parameter_difference(_python_parameters(recorded["init"]), inspect.signature(actual))
        if difference:
            yield f"{name}.__init__", difference
    for method, signature in recorded.get("methods", {}).items():
        difference = _method_difference(method, signature, actual)
        if difference:
            yield f"{name}.{method}", difference
    for constant, value in recorded.get("constants", {}).items():
        difference = constant_difference(value, getattr(actual, constant, None))
        if difference:
            yield f"{name}.{constant}", difference
    for nested, inner in recorded.get("nested", {}).items():
        if hasattr(actual, nested):
            yield from class_differences(f"{name}.{nested}", inner, getattr(actual, nested))
        else:
            yield f"{name}.{nested}", "is missing"


def constant_difference(recorded: str, actual: object) -> str | None:
    """Return how a constant differs from the text of the recorded one, or None."""
    return None if repr(actual) == recorded else f"is {actual!r}, not {recorded}"


def parameter_difference(recorded: Sequence[str], actual: inspect.Signature) -> str | None:
    """Return what a call by the recorded parameters would stumble over, or None."""
    parameters = list(actual.parameters.values())
    for index, text in enumerate(recorded):
        wanted, _, default = text.partition("=")
        if index >= len(parameters):
            return f"lacks parameter {wanted!r}; has {actual}"
        if wanted.startswith("*") and any(p.kind in _STARS for p in parameters[index:]):
            break
        parameter = parameters[index]
        stars = _STARS.get(parameter.kind, "")
        if stars + parameter.name != wanted:
            return f"parameter {index} is {stars + parameter.name!r}, not {wanted!r}"
        if default and (parameter.default is inspect.Parameter.empty or repr(parameter.default) != default):
            return f"parameter {wanted!r} has the default {parameter.default!r}, not {default}"
    for extra in parameters[len(recorded) :]:
        if extra.default is inspect.Parameter.empty and extra.kind not in _STARS:
            return f"has the further required parameter {extra.name!r}"
    return None


def _member_differences(name: str, members: Sequence[str], actual: type) -> Iterator[tuple[str, str]]:
    if not issubclass(actual, Enum):
        yield name, "is not an Enum"
        return
    missing = [member for member in members if member not in actual.__members__]
    if missing:
        yield name, f"lacks the members {missing}"


def _method_difference(method: str, recorded: Any, actual: type) -> str | None:
    if not hasattr(actual, method):
        return "is missing"
    if recorded == "nested class":
        return None if inspect.isclass(getattr(actual, method)) else "is not a nested class"
    if recorded == "property":
        return None
    attribute = inspect.getattr_static(actual, method)
    if isinstance(recorded, dict):
        (kind, parameters), *_ = recorded.items()
        if kind == "static" and not isinstance(attribute, staticmethod):
            return "is not a static method"
        if kind == "class":
            if not isinstance(attribute, classmethod):
                return "is not a class method"
            parameters = parameters[1:]
        return parameter_difference(
            _python_parameters(parameters), inspect.signature(getattr(actual, method))
        )
    if isinstance(attribute, staticmethod | classmethod):
        # Called on an instance it takes the same arguments.
        return parameter_difference(_python_parameters(recorded), inspect.signature(getattr(actual, method)))
    signature = inspect.signature(attribute)
    bound = signature.replace(parameters=list(signature.parameters.values())[1:])
    return parameter_difference(_python_parameters(recorded), bound)


def _needs_java_object(parameters: Sequence[str]) -> bool:
    """Whether a constructor cannot be called without a Java object, so that users never call it."""
    return any(p.startswith(JAVA_PARAMETER_PREFIX) and "=" not in p for p in parameters)


def _python_parameters(parameters: Sequence[str]) -> list[str]:
    return [parameter for parameter in parameters if not parameter.startswith(JAVA_PARAMETER_PREFIX)]
