"""UserCode: the shipped form of user code: functions as bytes, and the classes of the main program.

Owner: the thread that builds the program (packing), a worker's task thread before its first record
(`register_main_definitions`). User code is never called here. Functions are sent by cloudpickle. Classes of
the main program are sent once, as definitions that a worker adds to its own `__main__`; functions, sources
and records name them. If each function contained them by value, every load would add new methods to the
class. That would also happen in the client's own process if it runs the job itself.
"""

from __future__ import annotations

import dataclasses
import inspect
import io
import os
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.class_layout import with_layout
from yarrow.runtime.graph.job_graph import ShippedFile, UserCode

#: Modules of every worker, besides those of the standard library.
_PROVIDED = frozenset({"yarrow", "cloudpickle", "__main__", "__mp_main__"})

#: Position of the file's name among the arguments of CodeType.
_FILE_NAME = 10

#: Flag of types that are made at run time, by Python or by an extension.
_HEAP_TYPE = 1 << 9

#: Depth of captured values to which the search for an unpicklable value goes.
_SEARCH_DEPTH = 4
#: Where a program makes an object that does not travel.
_IN_OPEN = "in open() of a rich function, or inside the function"
_INSIDE = "inside the function"


class UnpicklableFunctionError(InvalidProgramError):
    """A function, source or sink cannot be pickled; the message names operator or stage, and captured value."""


class _CodePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A cloudpickle pickler that keeps layouts of classes, files of code, and dataclasses' own marker objects."""

    def reducer_override(self, obj: Any) -> Any:
        if obj is dataclasses.MISSING:
            return "MISSING"  # a global of its module
        if isinstance(obj, CodeType):
            return _with_file_name(obj, self.dispatch_table[CodeType](obj))
        if isinstance(obj, type) and (owner := _owner_of_built_in(obj)) is not None:
            return getattr, (owner, obj.__name__)
        reduced = super().reducer_override(obj)
        return with_layout(obj, reduced) if isinstance(obj, type) else reduced


def _owner_of_built_in(cls: type) -> ModuleType | None:
    """The module of an extension's type that names a module which does not exist, as `cimpl`; None for other types.

    Such a type cannot be made anew from its parts.
    """
    if cls.__flags__ & _HEAP_TYPE or cls.__module__ in sys.modules:
        return None
    holders = [
        module
        for name, module in list(sys.modules.items())
        if name not in _PROVIDED and getattr(module, "__dict__", {}).get(cls.__name__) is cls
    ]
    named = [module for module in holders if module.__name__.endswith(f".{cls.__module__}")]
    return next(iter([*named, *holders]), None)


def _with_file_name(code: CodeType, reduced: Any) -> Any:
    """Changes cloudpickle's reduction of code so that tracebacks name the user's file.

    Since version 3.1.3 cloudpickle names the file of all code `<dynamic-code>`.
    """
    arguments = reduced[1]
    return (
        reduced[0],
        (*arguments[:_FILE_NAME], code.co_filename, *arguments[_FILE_NAME + 1 :]),
        *reduced[2:],
    )


class _FunctionPickler(_CodePickler):
    """A cloudpickle pickler that sends classes of `__main__` by name, and notes the modules that the result needs."""

    def __init__(
        self, file: io.BytesIO, needed: set[str], seen: set[str], shippable: dict[type, bool]
    ) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._needed = needed
        self._seen = seen
        self._shippable = shippable

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj.__module__ == "__main__" and self._travels_as_definition(obj):
            return main_class, (obj.__qualname__,)
        reduced = super().reducer_override(obj)
        name = obj.__name__ if isinstance(obj, ModuleType) else getattr(obj, "__module__", None)
        if isinstance(name, str):
            # An object that is pickled by value does not need its module, but its records may have classes of
            # it.
            (self._needed if reduced is NotImplemented else self._seen).add(name.partition(".")[0])
        return reduced

    def _travels_as_definition(self, cls: type) -> bool:
        main = sys.modules["__main__"]
        root = vars(main).get(cls.__qualname__.partition(".")[0])
        if not isinstance(root, type) or root.__module__ != "__main__" or _find(cls.__qualname__) is not cls:
            return False
        if root not in self._shippable:
            self._shippable[root] = _can_pickle(root)
        return self._shippable[root]


def main_class(qualified_name: str) -> type:
    """The class of `__main__` with that name; pickled functions call this to reach it.

    Raises LookupError if `register_main_definitions` was not called before.
    """
    found = _find(qualified_name)
    if not isinstance(found, type):
        raise LookupError(
            f"the main program has no class {qualified_name!r}: register its definitions before loading"
            " functions"
        )
    return found


def _find(qualified_name: str) -> Any:
    found: Any = sys.modules["__main__"]
    for name in qualified_name.split("."):
        found = getattr(found, name, None)
    return found


class UserCodePacker:
    """Pickles the functions of one program, and remembers the modules that they need."""

    def __init__(self) -> None:
        self._needed: set[str] = set()
        self._seen: set[str] = set()
        self._shippable: dict[type, bool] = {}

    def pickle(self, value: Any, operator: str, role: str = "function") -> bytes:
        """The value as cloudpickle. Raises UnpicklableFunctionError with `operator`."""
        return self._pickle(value, f"Operator {operator!r}: its {role}", "workers", _IN_OPEN)

    def pickle_stage(self, function: Any, stage: str) -> bytes:
        """A function of a stage as cloudpickle. Raises UnpicklableFunctionError with `stage`."""
        return self._pickle(function, f"Stage {stage!r}: its function", "SparkDriver", _INSIDE)

    def _pickle(self, value: Any, what: str, receiver: str, remedy: str) -> bytes:
        buffer = io.BytesIO()
        try:
            _FunctionPickler(buffer, self._needed, self._seen, self._shippable).dump(value)
        except Exception as error:
            raise _unpicklable(value, what, receiver, remedy, error) from None
        return buffer.getvalue()

    def require(self, module: str) -> None:
        """Notes a module that workers need besides those of pickled values."""
        self._needed.add(module.partition(".")[0])

    @property
    def required_modules(self) -> tuple[str, ...]:
        """Sorted top-level modules that the pickled values need and that a worker may lack."""
        names = self._needed - _PROVIDED - sys.stdlib_module_names
        # Names without a spec cannot be imported: some extensions invent them for their types.
        return tuple(sorted(name for name in names if getattr(sys.modules.get(name), "__spec__", None)))

    def user_code(self, files: Iterable[ShippedFile] = ()) -> UserCode:
        """The user code that a worker needs before it loads the pickled functions."""
        modules = self.required_modules
        return UserCode(
            main_definitions=main_definitions(),
            python_path=_python_path(sorted({*modules, *self._seen} - _PROVIDED - sys.stdlib_module_names)),
            files=tuple(files),
            python_version=(sys.version_info.major, sys.version_info.minor),
            required_modules=modules,
        )


def main_definitions() -> bytes:
    """cloudpickle of {name: class} for the classes of `__main__`, except unpicklable ones."""
    main = sys.modules.get("__main__")
    classes = {
        name: value
        for name, value in vars(main).items()
        if isinstance(value, type) and value.__module__ == "__main__"
    }
    if not classes:
        return b""
    try:
        return _by_value(classes)
    except Exception:
        shippable = {name: value for name, value in classes.items() if _can_pickle(value)}
        return _by_value(shippable) if shippable else b""


def _by_value(value: Any) -> bytes:
    buffer = io.BytesIO()
    _CodePickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def register_main_definitions(definitions: bytes) -> None:
    """Adds the classes to this process's `__main__`; call it before any function of the job is loaded.

    Not in the process that made them: its `__main__` has them already.
    """
    if not definitions:
        return
    main = sys.modules["__main__"]
    for name, value in cloudpickle.loads(definitions).items():
        setattr(main, name, value)


def describe_callable(value: Any) -> str:
    """The name of a function in messages: `<lambda> at job.py:12`, `parse at job.py:3`, `Splitter object`."""
    if isinstance(value, MethodType):
        return f"{type(value.__self__).__name__}.{value.__func__.__name__}"
    if isinstance(value, FunctionType):
        code = value.__code__
        name = value.__qualname__.rpartition("<locals>.")[2]
        return f"{name} at {os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    if isinstance(value, BuiltinFunctionType | type):
        return value.__qualname__
    return f"{type(value).__qualname__} object"


def _unpicklable(
    value: Any, what: str, receiver: str, remedy: str, error: Exception
) -> UnpicklableFunctionError:
    culprit = _culprit(value, _SEARCH_DEPTH)
    named = f" because of {culprit}" if culprit else ""
    return UnpicklableFunctionError(
        f"{what} ({describe_callable(value)}) cannot be sent to the {receiver}{named}:"
        f" {type(error).__name__}: {error}. Create such an object {remedy}, instead of capturing it."
    )


def _culprit(value: Any, depth: int) -> str:
    """The first unpicklable captured value with the part at fault; empty if none is found."""
    for kind, name, captured in _captured(value):
        if _can_pickle(captured):
            continue
        here = f"{kind} {name!r} ({type(captured).__module__}.{type(captured).__qualname__})"
        # An object with its own __reduce__ that fails is at fault, whatever it holds.
        speaks = "__reduce__" in vars(type(captured))
        deeper = "" if speaks or not depth else _culprit(captured, depth - 1)
        return f"{here}, in it {deeper}" if deeper else here
    return ""


def _captured(value: Any) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, MethodType):
        yield "the instance of", value.__func__.__name__, value.__self__
    elif isinstance(value, FunctionType):
        try:
            found = inspect.getclosurevars(value)
        except ValueError:  # a variable of the enclosing function without a value yet
            return
        for name, captured in found.nonlocals.items():
            yield "the captured variable", name, captured
        if value.__module__ == "__main__" or "<locals>" in value.__qualname__:
            for name, captured in found.globals.items():
                yield "the global variable", name, captured
        for number, default in enumerate(value.__defaults__ or ()):
            yield "the default argument", str(number), default
    elif isinstance(value, dict):
        for key, item in value.items():
            yield "the item", str(key), item
    elif isinstance(value, list | tuple | set | frozenset):
        for number, item in enumerate(value):
            yield "the element", str(number), item
    else:
        for name, item in getattr(value, "__dict__", {}).items():
            yield "the attribute", name, item
        if type(value).__module__ == "__main__":
            for name, item in vars(type(value)).items():
                if not name.startswith("__"):
                    yield "the class attribute", name, item


def _can_pickle(value: Any) -> bool:
    try:
        _by_value(value)
    except Exception:
        return False
    return True


def _python_path(modules: Iterable[str]) -> tuple[str, ...]:
    """The folder of the main program, and those of needed modules that no installation provides."""
    folders: dict[str, None] = {}
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if script:
        folder = os.path.dirname(os.path.abspath(script))
        if sys.path and os.path.abspath(sys.path[0] or os.curdir) == folder:
            folders[folder] = None
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    for name in modules:
        for root in _roots(sys.modules.get(name)):
            if os.path.realpath(root) not in installed:
                folders[root] = None
    return tuple(folders)


def _roots(module: ModuleType | None) -> Iterator[str]:
    """The folders that contain a top-level module; a package without __init__.py may have several."""
    file = getattr(module, "__file__", None)
    if file is None:
        for place in getattr(module, "__path__", ()):
            yield os.path.dirname(os.path.abspath(place))
        return
    place = os.path.dirname(os.path.abspath(file))
    yield os.path.dirname(place) if os.path.basename(file) == "__init__.py" else place
