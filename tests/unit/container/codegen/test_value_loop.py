"""ValueLoop: the results of functions for many values, computed and called, and what is left behind a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from yarrow.container.codegen.value_loop import ValueLoop


def _looped(value: Any) -> Any:
    for _ in range(2):
        value += 1
    return value


@pytest.mark.parametrize("inlines", [True, False])
@pytest.mark.parametrize(
    ("function", "expected"),
    [(lambda x: x, [3, 0, 3]), (lambda x: (x, x + 1), [(3, 4), (0, 1), (3, 4)]), (_looped, [5, 2, 5])],
)
def test_each_value_has_its_result(
    function: Callable[[Any], Any], expected: list[Any], inlines: bool
) -> None:
    loop, results = ValueLoop(function, inlines=inlines), ["before"]
    loop.extend(results, [3, 0, 3])
    loop.close()
    assert results == ["before", *expected]


@pytest.mark.parametrize("inlines", [True, False])
def test_results_from_before_a_failure_stay(inlines: bool) -> None:
    loop, results = ValueLoop(lambda x: 6 // x, inlines=inlines), list[Any]()
    with pytest.raises(ZeroDivisionError) as caught:
        loop.extend(results, [3, 2, 0, 1])
    assert results == [2, 3]
    trace = loop.told(caught.value).__traceback__
    names = set[str]()
    while trace is not None:
        names.add(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    assert "<lambda>" in names
    loop.close()
