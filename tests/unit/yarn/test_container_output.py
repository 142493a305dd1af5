"""What is quoted of a container's output: its end, without stacks."""

from __future__ import annotations

import pytest

from yarrow.runtime.yarn.container_output import last_lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ""),
        ("a\n\n  b  c \n", "a / b c"),
        ("one\ntwo\nthree\nfour\n", "two / three / four"),
        ('Traceback (most recent call last):\n  File "x.py", line 1\n    f()\nKeyError: 1\n', "KeyError: 1"),
    ],
)
def test_the_last_lines_that_say_something(text: str, said: str) -> None:
    assert last_lines(text) == said


def test_what_is_long_is_cut_at_its_beginning() -> None:
    said = last_lines("x" * 5000 + " end")
    assert len(said) < 700
    assert said.startswith("... x")
    assert said.endswith("x end")
