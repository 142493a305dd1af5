"""Expressions of columns: what `col` refuses, and what no condition can be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.table.expressions import col


def test_values_that_no_column_is_compared_with() -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: col("x") == None, "use is_null"),  # noqa: E711
        (lambda: col("x") == math.nan, "a float other than NaN"),
        (lambda: col("x") > 2**63, "an int of 64 bits"),
        (lambda: col("x") == "\ud800", "cannot be compared"),
        (lambda: col("x").in_(), "needs a value"),
    ]
    for call, why in refused:
        with pytest.raises(InvalidProgramError, match=re.escape(why)):
            call()
    with pytest.raises(TypeError, match="takes the name of a column"):
        col(3)  # type: ignore[arg-type]


def test_conditions_are_combined_by_operators_alone() -> None:
    with pytest.raises(TypeError, match="Combine conditions by &"):
        _ = (col("x") > 1) and (col("x") < 3)
    with pytest.raises(TypeError, match="with another condition only"):
        _ = (col("x") > 1) & True
