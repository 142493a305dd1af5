"""Classes of the main program have the client's layout in a worker: slots, and no attributes beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]

#: Defines classes of every layout, and functions that refer to classes which are made inside of a function.
MAIN_PROGRAM = """
import abc, collections, pickle, sys, weakref
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar
from yarrow.runtime.graph.user_code import UserCodePacker, main_definitions

T = TypeVar("T")

@dataclass(slots=True)
class Slotted:
    name: str
    number: int = 0
    tags: list = field(default_factory=list)

@dataclass(slots=True, frozen=True)
class Frozen:
    name: str
    number: int = 1

@dataclass(slots=True, weakref_slot=True)
class Referable:
    name: str

@dataclass(slots=True)
class Child(Slotted):
    more: float = 0.5

@dataclass(slots=True)
class Box(Generic[T]):
    content: T

@dataclass(slots=True, order=True)
class IntBox(Box[int]):
    pass

class Plain:
    __slots__ = ("a", "b")

class Single:
    __slots__ = "word"

class Described:
    __slots__ = {"a": "what a is"}

class Iterated:
    __slots__ = iter(["a", "b"])

class Private:
    __slots__ = ("__hidden", "open")
    def __init__(self):
        self.__hidden = 1
    def hidden(self):
        return self.__hidden

class WithDict:
    __slots__ = ("a", "__dict__")

class WithReference:
    __slots__ = ("a", "__weakref__")

class Base:
    __slots__ = ()

class Empty(Base):
    __slots__ = ()

class Mixed(Plain, Base):
    __slots__ = ("c",)

class Abstract(abc.ABC):
    __slots__ = ("a",)
    @abc.abstractmethod
    def run(self): ...

class Concrete(Abstract):
    __slots__ = ()
    def run(self):
        return self.a

class Open(Plain):
    pass

class Point(NamedTuple):
    x: int
    y: int = 2

class Pair(collections.namedtuple("Pair", "x y")):
    __slots__ = ()

class Outer:
    @dataclass(slots=True)
    class Inner:
        a: int

@dataclass
class Usual:
    a: int = 0

def local():
    @dataclass(slots=True)
    class Local:
        a: int
    return Local

def layouts(classes):
    described = {}
    for name, cls in classes.items():
        slots = cls.__dict__.get("__slots__")
        if slots is not None and not isinstance(slots, (str, tuple, list, dict)):
            slots = ("a", "b")
        described[name] = (
            slots, cls.__dictoffset__, cls.__weakrefoffset__, cls.__basicsize__, cls.__itemsize__,
            [base.__qualname__ for base in cls.__mro__], "__dict__" in cls.__dict__, "__weakref__" in cls.__dict__,
        )
    return described

CLASSES = {
    name: value for name, value in list(globals().items()) if isinstance(value, type) and value.__module__ == "__main__"
}
CLASSES["Inner"] = Outer.Inner
CLASSES["Local"] = local()
if __name__ == "__main__":
    packer = UserCodePacker()
    made = local()
    function = packer.pickle(lambda: made, "Map")
    values = [Slotted("a", 1, [2]), Frozen("b"), Referable("c"), Child("d"), Box(1), Point(1), Outer.Inner(1)]
    records = pickle.dumps(values, 5)
    with open(sys.argv[1], "wb") as out:
        pickle.dump((main_definitions(), function, layouts(CLASSES), records), out)
"""

WORKER = """
import dataclasses, pickle, sys, types, weakref
from yarrow.runtime.graph.user_code import register_main_definitions

with open(sys.argv[1], "rb") as file:
    definitions, function, expected, records = pickle.load(file)
sys.modules["__main__"] = main = types.ModuleType("__main__")
register_main_definitions(definitions)
local = pickle.loads(function)
classes = {name: getattr(main, name, None) for name in expected}
classes["Inner"], classes["Local"] = main.Outer.Inner, local()

found = {}
for name, cls in classes.items():
    slots = cls.__dict__.get("__slots__")
    found[name] = (
        slots, cls.__dictoffset__, cls.__weakrefoffset__, cls.__basicsize__, cls.__itemsize__,
        [base.__qualname__ for base in cls.__mro__], "__dict__" in cls.__dict__, "__weakref__" in cls.__dict__,
    )
for name in expected:
    iterated = name == "Iterated"
    assert found[name][iterated:] == expected[name][iterated:], (name, found[name], expected[name])

def refuses(value):
    try:
        value.other = 1
    except (AttributeError, TypeError):
        return not hasattr(value, "__dict__")
    return False

read = pickle.loads(records)
slotted, frozen, referable, child, box, point, inner = read
assert all(map(refuses, read)), read
assert refuses(local()(1)) and refuses(main.Outer.Inner(1)) and refuses(main.Private()) and refuses(main.Concrete())
assert pickle.dumps(read, 5) == records
assert weakref.ref(referable)() is referable
assert main.Private().hidden() == 1
assert (child.more, child.number) == (0.5, 0)
assert main.Frozen("b") == frozen and hash(main.Frozen("b")) == hash(frozen)
assert dataclasses.replace(slotted, number=3).number == 3 and slotted.tags == [2]
assert main.Box[int](1) == box and main.IntBox(1) < main.IntBox(2)
try:
    frozen.number = 2
except dataclasses.FrozenInstanceError:
    print("alike")
"""


def test_classes_with_slots_have_the_same_layout_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(MAIN_PROGRAM)
    (tmp_path / "worker.py").write_text(WORKER)
    _run(tmp_path / "job.py", tmp_path / "packed")
    assert _run(tmp_path / "worker.py", tmp_path / "packed") == "alike\n"


def _run(script: Path, argument: Path) -> str:
    finished = subprocess.run(
        [sys.executable, str(script), str(argument)],
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
