"""Which tests call a method of PyFlink's DataStream API, found in their text: nothing is run.

Owner: none (pure). The type of an expression is followed through the annotations of Yarrow's methods, so that `process`
of a window and `process` of a keyed stream are two methods. A call whose object has no known type counts only if no
other class has a method of that name.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
#: Tests that look at names and signatures alone, and what writes pages.
_NOT_OF_BEHAVIOUR = ("compat/", "architecture/", "support/pages/")
#: Classes whose methods the engine calls when a program uses them.
_CALLED_BY_ENGINE = "pyflink.datastream.window"
#: What functions of these names give, whatever has them.
_GIVES = {
    "get_execution_environment": "StreamExecutionEnvironment",
    "get_broadcast_state": "BroadcastState",
    "window_all": "AllWindowedStream",
    "count_window_all": "AllWindowedStream",
}


@dataclass(frozen=True)
class ApiClass:
    """A class of PyFlink's API, and the one of Yarrow."""

    module: str
    name: str
    methods: tuple[str, ...]
    actual: type


@dataclass
class Found:
    """Files below tests, for (class, method) or for the class, by the way in which they use it."""

    called: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    implemented: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    used: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    #: Calls on objects of unknown type, by the name of the method.
    unknown: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


def api_classes(recorded: Mapping[str, Mapping[str, Any]], excluded: Mapping[str, str]) -> list[ApiClass]:
    """The classes of `pyflink.datastream` that Yarrow has, with the methods that are not excluded."""
    found: dict[str, ApiClass] = {}
    for module, names in sorted(recorded.items()):
        if not module.startswith("pyflink.datastream") or f"{module}.*" in excluded:
            continue
        ours = importlib.import_module(module.replace("pyflink", "yarrow", 1))
        for name, entry in sorted(names.items()):
            actual = getattr(ours, name, None)
            methods = tuple(
                method
                for method, kind in sorted(entry.get("methods", {}).items())
                if f"{module}.{name}.{method}" not in excluded and kind != "nested class"
            )
            if entry.get("kind") == "class" and inspect.isclass(actual) and methods and name not in found:
                found[name] = ApiClass(module, name, methods, actual)
    return list(found.values())


def find_calls(classes: list[ApiClass]) -> Found:
    """Looks through all tests of behaviour."""
    found = Found()
    by_name = {each.name: each.actual for each in classes}
    trees = dict(_trees(classes))
    returned = {
        node.name: named
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and (named := _class_in(_text(node.returns), by_name)) is not None
    }
    for file, tree in trees.items():
        CallsInFile(file, by_name, returned, found).look(tree)
    return found


def tests_of(api: ApiClass, method: str, classes: list[ApiClass], found: Found) -> tuple[str, set[str]]:
    """How tests use a method, and the files that do; no file if none does."""
    place = (api.name, method)
    if files := found.called.get(place):
        return "called", files
    if files := found.implemented.get(place):
        return "implemented", files
    owners = Counter(each for other in classes for each in other.methods)
    if owners[method] == 1 and (files := found.unknown.get(method)):
        return "called", files
    if api.module == _CALLED_BY_ENGINE or issubclass(api.actual, _engine_bases()):
        return "by the engine", found.used.get(api.name, set())
    return "", set()


def _engine_bases() -> tuple[type, ...]:
    window = importlib.import_module("yarrow.datastream.window")
    return (window.Trigger, window.WindowAssigner)


def _trees(classes: list[ApiClass]) -> Iterator[tuple[str, ast.Module]]:
    # Some classes of the API have their home elsewhere, and tests import them from there.
    homes = {each.name for each in classes if not each.actual.__module__.startswith("yarrow.datastream")}
    named = re.compile(rf"\byarrow\.datastream\b|\b(?:{'|'.join(sorted(homes))})\b")
    for path in sorted(TESTS.rglob("*.py")):
        file, text = path.relative_to(TESTS).as_posix(), path.read_text(encoding="utf-8")
        # Other files are not parsed: most tests are of other parts.
        if not file.startswith(_NOT_OF_BEHAVIOUR) and named.search(text):
            yield file, ast.parse(text)


def _text(annotation: ast.expr | None) -> str:
    if isinstance(annotation, ast.Name):
        return annotation.id
    return "" if annotation is None or isinstance(annotation, ast.Constant) else ast.unparse(annotation)


def _dotted(node: ast.expr) -> str:
    """`name` or `name.attribute`; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _class_in(text: str, by_name: Mapping[str, type]) -> str | None:
    """The class of the API that an annotation names first, outside of brackets."""
    for word in re.findall(r"\w+", text.partition("[")[0]):
        if word in by_name:
            return str(word)
    return None


class CallsInFile:
    """The calls in one file."""

    def __init__(
        self, file: str, by_name: Mapping[str, type], returned: Mapping[str, str], found: Found
    ) -> None:
        self._file, self._by_name, self._returned, self._found = file, by_name, returned, found
        #: Bases of the classes of the file that lead to the API.
        self._bases: dict[str, list[str]] = {}

    def look(self, tree: ast.Module) -> None:
        """Adds what the file has."""
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self._implementations(node)
        self._scope(tree, {})

    def _implementations(self, node: ast.ClassDef) -> None:
        names = [name for base in node.bases if (name := _last_name(base))]
        known = [each for name in names for each in self._bases.get(name, [])]
        known += [name for name in names if name in self._by_name]
        self._bases[node.name] = known
        defined = [
            part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        for base in known:
            ancestors = [
                name for name, actual in self._by_name.items() if actual in self._by_name[base].__mro__
            ]
            for owner in {base, *ancestors}:
                for method in defined:
                    self._found.implemented[owner, method].add(self._file)

    def _scope(self, node: ast.AST, outer: Mapping[str, str]) -> None:
        """Goes through one function, or the module, in the order of its text."""
        scope = dict(outer)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            arguments = node.args
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                named = _class_in(_text(argument.annotation), self._by_name)
                scope.pop(argument.arg, None)
                if named is not None:
                    scope[argument.arg] = named
        if isinstance(node, ast.ClassDef):
            scope |= self._attributes(node)
        self._statements(node, scope)

    def _attributes(self, node: ast.ClassDef) -> dict[str, str]:
        """The declared types of `self.x`, under that text."""
        return {
            target if target.startswith("self.") else f"self.{target}": named
            for part in ast.walk(node)
            if isinstance(part, ast.AnnAssign)
            and (named := _class_in(_text(part.annotation), self._by_name)) is not None
            and (target := _dotted(part.target))
        }

    def _statements(self, node: ast.AST, scope: dict[str, str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
                self._scope(child, scope)
                continue
            self._statements(child, scope)
            if isinstance(child, ast.Assign | ast.AnnAssign) and child.value is not None:
                targets = child.targets if isinstance(child, ast.Assign) else [child.target]
                declared = isinstance(child, ast.AnnAssign) and _class_in(
                    _text(child.annotation), self._by_name
                )
                named = declared or self._type_of(child.value, scope)
                for target in targets:
                    text = _dotted(target)
                    scope.pop(text, None)
                    if text and named:
                        scope[text] = named
            elif isinstance(child, ast.Call):
                self._call(child, scope)

    def _call(self, call: ast.Call, scope: Mapping[str, str]) -> None:
        name = _last_name(call.func)
        if name in self._by_name:
            self._found.used[str(name)].add(self._file)
        if isinstance(call.func, ast.Attribute):
            owner = self._type_of(call.func.value, scope)
            if owner is None:
                self._found.unknown[call.func.attr].add(self._file)
                return
            self._found.used[owner].add(self._file)
            self._found.called[owner, call.func.attr].add(self._file)
            # A class of the API from which it has the very same method.
            called = self._by_name[owner]
            same = getattr(called, call.func.attr, None)
            for base in called.__mro__[1:]:
                inherits = same is not None and getattr(base, call.func.attr, None) is same
                if inherits and self._by_name.get(base.__name__) is base:
                    self._found.called[base.__name__, call.func.attr].add(self._file)

    def _type_of(self, node: ast.expr, scope: Mapping[str, str]) -> str | None:
        """The class of the API of which the expression is an object, or which it is."""
        if isinstance(node, ast.Name | ast.Attribute):
            text = _dotted(node)
            return scope.get(text) or (text if text in self._by_name else None)
        if not isinstance(node, ast.Call):
            return None
        name = _last_name(node.func)
        if name in _GIVES or name in self._by_name:
            return _GIVES.get(str(name), name)
        if isinstance(node.func, ast.Attribute):
            owner = self._type_of(node.func.value, scope)
            if name == "broadcast" and owner is not None and node.args:
                return "BroadcastStream"
            if name == "connect" and node.args and self._type_of(node.args[0], scope) == "BroadcastStream":
                return "BroadcastConnectedStream"
            method = None if owner is None else getattr(self._by_name[owner], node.func.attr, None)
            annotations = getattr(inspect.unwrap(method), "__annotations__", {}) if callable(method) else {}
            returned = str(annotations.get("return", ""))
            # The parts of DataStream name the stream that they return by a type parameter.
            returned = "DataStream" if returned == "S" else returned
            return owner if returned == "Self" else _class_in(returned, self._by_name)
        return self._returned.get(name or "")


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Subscript):
        return _last_name(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
