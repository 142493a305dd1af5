"""User code on its way to a worker: main classes stay one class, what cannot travel is named."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from yarrow.datastream.functions import MapFunction
from yarrow.runtime.graph.user_code import (
    UnpicklableFunctionError,
    UserCodePacker,
    describe_callable,
    main_class,
)

ROOT = Path(__file__).resolve().parents[4]

#: A main program: builds a job of a dataclass, an Enum and a NamedTuple, and writes it down.
MAIN_PROGRAM = """
import enum, pickle, sys, threading
from dataclasses import dataclass, field
from typing import NamedTuple
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.graph.job_graph import encode_job_graph
import beside

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclass(frozen=True)
class Point:
    x: int
    colour: Colour

    class Origin:
        pass

class Pair(NamedTuple):
    left: Point
    right: int

class Locked:
    lock = threading.Lock()

@dataclass
class Tagged:
    tags: list = field(default_factory=list)

env = StreamExecutionEnvironment.get_execution_environment()
points = env.from_collection([Point(1, Colour.RED)])
points.map(lambda p: Point.Origin and Pair(Point(p.x + 1, Colour.BLUE), beside.double(p.x))).filter(
    lambda pair: isinstance(pair, Pair) and pair.left.colour is Colour.BLUE
).print()
with open(sys.argv[1], "wb") as out:
    graph = encode_job_graph(env.get_job_graph("main classes"))
    pickle.dump((graph, pickle.dumps(Point(5, Colour.RED))), out)
"""

#: A worker: knows the job graph only, registers the definitions, runs the functions.
WORKER = """
import dataclasses, pickle, sys
from yarrow.runtime.graph.job_graph import decode_job_graph
from yarrow.runtime.graph.user_code import register_main_definitions

with open(sys.argv[1], "rb") as file:
    encoded, pickled_record = pickle.load(file)
graph = decode_job_graph(encoded)
code = graph.user_code
sys.path.extend(code.python_path)
assert code.required_modules == ("beside",), code.required_modules
register_main_definitions(code.main_definitions)
assert len(code.main_definitions) > 1000
specs = [operator.spec for vertex in graph.vertices for operator in vertex.operators]
mapped, filtered = [pickle.loads(spec.function) for spec in specs if hasattr(spec, "shape")]
record = pickle.loads(pickled_record)
main = sys.modules["__main__"]
assert type(record) is main.Point
assert record.colour is main.Colour.RED
result = mapped(record)
assert type(result) is main.Pair and type(result.left) is main.Point
assert result.left == main.Point(6, main.Colour.BLUE) and result.right == 10
assert filtered(result)
again = pickle.loads(pickle.dumps(result, protocol=5))
assert again == result and type(again) is main.Pair and again.left.colour is main.Colour.BLUE
assert filtered(again)
assert not hasattr(main, "Locked")
assert len(pickle.dumps(result, protocol=5)) < 200, "records carry their class"
declared, = dataclasses.fields(main.Tagged)
assert declared.default is dataclasses.MISSING and declared.default_factory is list
assert main.Tagged().tags == []
print("as one")
"""


def test_classes_of_the_main_program_are_one_class_in_a_worker(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(MAIN_PROGRAM)
    (tmp_path / "beside.py").write_text("def double(x):\n    return 2 * x\n")
    graph = tmp_path / "graph"
    _run(tmp_path / "job.py", graph)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "worker.py").write_text(WORKER)
    assert _run(elsewhere / "worker.py", graph) == "as one\n"


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


#: A main program that runs its own functions, as the one-process mode does.
IN_ONE_PROCESS = """
import enum, pickle, sys
from yarrow.runtime.graph.user_code import UserCodePacker

class Colour(enum.Enum):
    RED = 1

class Counter:
    count = 0
    def more(self):
        Counter.count += 1
        return Colour.RED

method = Counter.more
blob = UserCodePacker().pickle(lambda counter: (type(counter) is Counter, counter.more()), "Map")
Counter.count = 5
function = pickle.loads(blob)
assert Counter.more is method
assert function(Counter()) == (True, Colour.RED)
assert Counter.count == 6
print("untouched", sys.argv[1:] != [])
"""


def test_loading_a_function_leaves_the_classes_of_the_same_process_alone(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(IN_ONE_PROCESS)
    assert _run(tmp_path / "job.py", tmp_path) == "untouched True\n"


def test_a_class_that_was_not_registered_is_named() -> None:
    with pytest.raises(LookupError, match="main program has no class 'Point'"):
        main_class("Point")


class Holder(MapFunction[Any, Any]):
    def __init__(self) -> None:
        self.connection = threading.Lock()

    def map(self, value: Any) -> Any:
        return value


def test_a_captured_variable_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(UnpicklableFunctionError) as raised:
        UserCodePacker().pickle(lambda value: (lock, value), "Parse")
    message = str(raised.value)
    assert message.startswith("Operator 'Parse': its function (<lambda> at test_user_code.py:")
    assert "because of the captured variable 'lock' (_thread.lock)" in message
    assert "Create such an object in open()" in message


def test_an_attribute_is_named() -> None:
    with pytest.raises(
        UnpicklableFunctionError, match=r"Holder object.*the attribute 'connection' \(_thread\.lock"
    ):
        UserCodePacker().pickle(Holder(), "Map")


def test_what_lies_deeper_is_named() -> None:
    settings = {"inner": [1, threading.Lock()]}
    with pytest.raises(
        UnpicklableFunctionError, match=r"'settings' \(builtins\.dict\), in it .*the element '1' \(_thread"
    ):
        UserCodePacker().pickle(lambda value: settings, "Map")


def test_modules_by_name_are_required_and_those_every_worker_has_are_not() -> None:
    packer = UserCodePacker()
    packer.pickle(pytest.raises, "Map")
    packer.pickle(threading.Thread, "Map")
    packer.pickle(describe_callable, "Map")
    assert "yarrow" not in packer.required_modules
    assert "threading" not in packer.required_modules
    assert any(name in packer.required_modules for name in ("pytest", "_pytest"))


@pytest.mark.parametrize(
    ("value", "described"),
    [(len, "len"), (int, "int"), (Holder(), "Holder object"), (Holder().map, "Holder.map")],
)
def test_names_of_callables(value: Any, described: str) -> None:
    assert describe_callable(value) == described


def test_code_keeps_the_file_that_tracebacks_name() -> None:
    def outer() -> Any:
        return lambda: 1 / 0

    loaded = pickle.loads(UserCodePacker().pickle(outer, "map"))
    codes = [loaded.__code__, loaded().__code__]
    assert [code.co_filename for code in codes] == [__file__, __file__]
    assert [code.co_firstlineno for code in codes] == [
        outer.__code__.co_firstlineno,
        outer().__code__.co_firstlineno,
    ]


def test_types_of_extensions_travel_by_the_module_that_has_them() -> None:
    # It names a module `cimpl`, which nobody can import.
    assert Producer.__module__ not in sys.modules
    assert pickle.loads(UserCodePacker().pickle(lambda: Producer, "map"))() is Producer
