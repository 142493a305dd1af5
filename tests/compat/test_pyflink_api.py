"""Yarrow's API against PyFlink's, name by name and parameter by parameter, with explicit exclusions."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.compat.exclusions import JAVA_ONLY, NOT_BUILT_YET
from tests.compat.signatures import class_differences, constant_difference, parameter_difference

_DATA = Path(__file__).parent / "data"
#: Files of recorded names, each with the packages that are covered out of it.
_RECORDED = {
    "pyflink_api.json": ("pyflink.common", "pyflink.datastream"),
    "pyflink_nested_api.json": ("pyflink",),
    "pyflink_table_types.json": ("pyflink.table",),
}
_EXCLUDED = {**JAVA_ONLY, **NOT_BUILT_YET}


@cache
def recorded_modules() -> dict[str, dict[str, Any]]:
    """The recorded names of the modules this test covers; what several files say of a name is put together."""
    found: dict[str, dict[str, Any]] = {}
    for file, parts in _RECORDED.items():
        modules = json.loads((_DATA / file).read_text(encoding="utf-8"))["modules"]
        for module, names in modules.items():
            if any(module == part or module.startswith(f"{part}.") for part in parts):
                known = found.setdefault(module, {})
                for name, recorded in names.items():
                    known[name] = _put_together(known.get(name, {}), recorded)
    return found


def _put_together(known: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    said = {key: value for key, value in more.items() if value is not None}
    methods = {**known.get("methods", {}), **said.get("methods", {})}
    return {**known, **said, "methods": methods}


def differences(module: str) -> Iterator[tuple[str, str]]:
    """Yield (dotted PyFlink name, difference) for everything in a module that Yarrow lacks or has
    otherwise.
    """
    try:
        ours = importlib.import_module(module.replace("pyflink", "yarrow", 1))
    except ModuleNotFoundError:
        yield f"{module}.*", "the module is missing"
        return
    not_exported = []
    for name, recorded in recorded_modules()[module].items():
        dotted = f"{module}.{name}"
        actual = getattr(ours, name) if hasattr(ours, name) else _where_defined(name, recorded)
        if actual is None:
            yield dotted, "is missing"
            continue
        if not hasattr(ours, name):
            not_exported.append(name)
        if recorded.get("kind") == "class":
            yield from class_differences(dotted, recorded, actual)
        elif recorded.get("kind") == "function":
            difference = parameter_difference(recorded["params"], inspect.signature(actual))
            if difference:
                yield dotted, difference
        elif recorded.get("kind") == "constant":
            difference = constant_difference(recorded["value"], actual)
            if difference:
                yield dotted, difference
        elif recorded.get("kind") == "object" and type(actual).__name__ != recorded["of"]:
            yield dotted, f"is a {type(actual).__name__}, not a {recorded['of']}"
    if not_exported:
        yield f"{module} (exports)", f"defined, but not exported: {not_exported}"


def _where_defined(name: str, recorded: dict[str, Any]) -> Any:
    """The object of this name in the module that PyFlink defines it in, or None."""
    defined_in = recorded.get("defined_in") or recorded.get("same_as", "").rpartition(".")[0]
    if not defined_in:
        return None
    try:
        return getattr(importlib.import_module(defined_in.replace("pyflink", "yarrow", 1)), name, None)
    except ModuleNotFoundError:
        return None


@cache
def all_differences() -> dict[str, str]:
    """Every difference by dotted PyFlink name."""
    return {name: text for module in recorded_modules() for name, text in differences(module)}


def is_absent(name: str) -> bool:
    """Whether a name differs, or the class or module it belongs to is missing."""
    if name in all_differences():
        return True
    parts = name.split(".")
    owners = [".".join(parts[:end]) for end in range(2, len(parts))]
    return any(
        all_differences().get(owner) == "is missing" or f"{owner}.*" in all_differences() for owner in owners
    )


@pytest.mark.parametrize("module", sorted(recorded_modules()))
def test_the_module_takes_every_call_that_pyflink_takes(module: str) -> None:
    unexplained = {
        name: text
        for name, text in differences(module)
        if name not in _EXCLUDED and f"{module}.*" not in _EXCLUDED
    }
    assert unexplained == {}


@pytest.mark.parametrize("name", sorted(_EXCLUDED))
def test_what_is_excluded_is_really_absent(name: str) -> None:
    assert is_absent(name), f"{name} is there now: take it off the list of exclusions"


@pytest.mark.parametrize("name", sorted(_EXCLUDED))
def test_the_page_for_those_who_come_from_pyflink_names_what_is_not_there(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pyflink.md").read_text(encoding="utf-8")
    owner, _, last = name.removesuffix(".*").removesuffix(" (exports)").rpartition(".")
    said = owner.rpartition(".")[2] if last == "__init__" else last
    assert said in page, f"docs/pyflink.md does not say that {name} is missing: {_EXCLUDED[name]}"


def test_no_name_is_excluded_twice() -> None:
    assert not JAVA_ONLY.keys() & NOT_BUILT_YET.keys()


@pytest.mark.parametrize(
    ("recorded", "signature", "fragment"),
    [
        (["a"], "lambda: 0", "lacks parameter 'a'"),
        (["a", "b"], "lambda b, a: 0", "parameter 0 is 'b'"),
        (["a=1"], "lambda a=2: 0", "default 2, not 1"),
        (["a=1"], "lambda a: 0", "not 1"),
        ([], "lambda a: 0", "further required parameter 'a'"),
        (["*a"], "lambda a: 0", "parameter 0 is 'a'"),
    ],
)
def test_a_different_signature_is_noticed(recorded: list[str], signature: str, fragment: str) -> None:
    difference = parameter_difference(recorded, inspect.signature(eval(signature)))
    assert difference is not None
    assert fragment in difference


def test_nested_classes_and_constants_are_compared() -> None:
    class Outer:
        LIMIT = 1

        class Inner:
            def size(self) -> int:
                return 0

    inner = {"methods": {"size": [], "grow": []}, "nested": {"Deep": {}}}
    recorded = {"constants": {"LIMIT": "2"}, "nested": {"Inner": inner, "Other": {}}}
    assert dict(class_differences("Outer", recorded, Outer)) == {
        "Outer.LIMIT": "is 1, not 2",
        "Outer.Inner.grow": "is missing",
        "Outer.Inner.Deep": "is missing",
        "Outer.Other": "is missing",
    }


def test_a_wider_signature_is_accepted() -> None:
    assert parameter_difference(["a", "b=None"], inspect.signature(lambda a=1, b=None, c=3: 0)) is None
