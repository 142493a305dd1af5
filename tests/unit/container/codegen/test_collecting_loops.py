"""A loop that only collects rows becomes two calls into C, where its rows are a list or the iterator of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.task.mails import ChunkAtHand

STAMPS: list[int | None] = [10, None, 30]


def collecting() -> tuple[Callable[..., None], list[Any], list[Any]]:
    """Return a generated function that collects rows and timestamps, and both of its lists."""
    rows: list[Any] = ["former"]
    stamps: list[Any] = [0]
    code = CodeWriter()
    with code.block("for v, t in zip(rows, timestamps):"):
        code.line(f"{code.bind('append', rows.append)}(v)")
        code.line(f"{code.bind('append', stamps.append)}(t)")
    code.extend_instead(("rows", "v"), ("timestamps", "t"))
    return code.compile("collect", "rows, timestamps").function, rows, stamps


def one_by_one(rows: Iterable[Any]) -> Iterator[Any]:
    """Rows that are made as they are asked for."""
    yield from rows


@pytest.mark.parametrize("form", [list, iter, one_by_one])
def test_rows_of_each_form_stand_behind_those_that_were_there(form: Callable[[list[str]], Any]) -> None:
    collect, rows, stamps = collecting()
    collect(form(["a", "b", "c"]), STAMPS)
    assert rows == ["former", "a", "b", "c"]
    assert stamps == [0, *STAMPS]


@pytest.mark.parametrize("form", [list, iter])
def test_timestamps_without_end_are_taken_for_the_rows_alone(form: Callable[[list[str]], Any]) -> None:
    collect, _, stamps = collecting()
    collect(form(["a", "b"]), itertools.repeat(None))
    assert stamps == [0, None, None]


def test_rows_behind_a_cut_stay_with_their_timestamps() -> None:
    collect, rows, stamps = collecting()
    chunk = ChunkAtHand()
    at_hand = chunk.begin(["a", "b", "c"])
    next(at_hand)
    chunk.cut()
    collect(at_hand, STAMPS)
    assert rows == ["former"] and stamps == [0]
    assert chunk.end() == 2
