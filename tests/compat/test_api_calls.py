"""docs/compatibility.md is what its script makes, and the script finds calls by the types of expressions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.compat.api_calls import CallsInFile, Found
from tests.compat.differences import by_method, differences, marks_in
from tests.support.pages.compatibility_page import rendered
from yarrow.datastream import (
    BroadcastConnectedStream,
    BroadcastStream,
    DataStream,
    KeyedStream,
    MapFunction,
    StreamExecutionEnvironment,
    WindowedStream,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
PROGRAM = """
class Same(MapFunction):
    def map(self, value):
        return value

def build(stream: DataStream):
    windows = stream.key_by(str).window(anything)
    windows.process(Shown())
    stream.key_by(str).process(Counts())
    something.process()
    helper.get_execution_environment().from_collection([1]).union(stream)
    stream.connect(stream.broadcast(rules)).process(Rules())
    stream.broadcast().map(str)
"""


def test_the_page_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    made = rendered(page, keeps_missing=True)
    assert page == made, "docs/compatibility.md is out of date: run python -m tests.support.pages"


def test_calls_are_told_apart_by_the_types_of_their_objects() -> None:
    classes = (
        BroadcastConnectedStream,
        BroadcastStream,
        DataStream,
        KeyedStream,
        MapFunction,
        StreamExecutionEnvironment,
        WindowedStream,
    )
    found = Found()
    CallsInFile("a", {each.__name__: each for each in classes}, {}, found).look(ast.parse(PROGRAM))
    assert found.called.keys() == {
        ("DataStream", "key_by"),
        ("KeyedStream", "window"),
        ("WindowedStream", "process"),
        ("KeyedStream", "process"),
        ("StreamExecutionEnvironment", "from_collection"),
        ("DataStream", "union"),
        ("DataStream", "broadcast"),
        ("DataStream", "connect"),
        ("BroadcastConnectedStream", "process"),
        ("DataStream", "map"),
    }
    assert found.implemented.keys() == {("MapFunction", "map")}
    assert found.unknown.keys() == {"process", "get_execution_environment"}


TOLD = """
- **Keys** are gone. They never come
  back.
- Windows end.
"""
MARKED = """
@pytest.mark.slow
@pytest.mark.differs("KeyedStream.window", "KeyedStream.reduce", told="never come")
def test_keys(): ...

@pytest.mark.differs(told="Windows end")
async def test_windows(): ...

def test_nothing(): ...
"""


def test_differences_are_those_of_the_marks_of_tests() -> None:
    told = differences(TOLD, list(marks_in(MARKED, "unit/test_a.py")))
    assert [each.text for each in told] == ["**Keys** are gone. They never come\n  back.", "Windows end."]
    assert [mark.test for each in told for mark in each.marks] == ["test_keys", "test_windows"]
    assert by_method(told) == {
        "KeyedStream.window": {1: "unit/test_a.py"},
        "KeyedStream.reduce": {1: "unit/test_a.py"},
    }


def test_a_difference_without_a_test_and_a_mark_without_a_difference_are_refused() -> None:
    marks = list(marks_in(MARKED, "unit/test_a.py"))
    with pytest.raises(ValueError, match="shows this difference: Windows end"):
        differences(TOLD, marks[:1])
    with pytest.raises(ValueError, match="test_windows: 'Windows end' is part of 0 differences"):
        differences(TOLD.replace("Windows", "Doors"), marks)
    untold = MARKED.replace('told="Windows end"', "")
    with pytest.raises(
        ValueError, match=r"tests/unit/test_a.py, test_windows: the mark `differs` needs `told`"
    ):
        list(marks_in(untold, "unit/test_a.py"))
