"""CommutingCheck: stands in for a user's reduce function, and looks whether order or grouping change its results.

Owner: the task thread. The function is called more often than the program would, with copies. So a run with this check
only explains a difference that another run has found.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from yarrow.cli.verification.row_digests import digest, text
from yarrow.common.accumulators import Accumulator
from yarrow.container.codegen.user_functions import close_function, load_function, method_of, open_function
from yarrow.datastream.functions import ReduceFunction, RuntimeContext

#: Calls that are looked at, in each subtask.
_CALLS: Final = 20_000
#: Results whose arguments are remembered.
_REMEMBERED: Final = 1_000


class FirstText(Accumulator[str, str]):
    """The smallest of the texts that were added; "" = none was."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, value: str) -> None:
        self._text = min(filter(None, (self._text, value)), default="")

    def get_local_value(self) -> str:
        return self._text

    def reset_local(self) -> None:
        self._text = ""

    def merge(self, other: Accumulator[str, str]) -> None:
        self.add(other.get_local_value())


class CommutingCheck(ReduceFunction[Any]):
    """Reduces as the user's function does; the accumulator `result_name` gets one example in which order counts."""

    def __init__(self, function: bytes, operator: str, result_name: str) -> None:
        """`function` is cloudpickle of the user's."""
        self._blob = function
        self._operator = operator
        self._result_name = result_name

    def open(self, runtime_context: RuntimeContext) -> None:
        self._function = load_function(self._blob, self._operator)
        open_function(self._function, runtime_context)
        self._reduce = method_of(self._function, "reduce", self._operator)
        self._found = FirstText()
        runtime_context.add_accumulator(self._result_name, self._found)
        self._left = _CALLS
        #: By digest of a result, the values of which it was made.
        self._made_of: dict[bytes, tuple[Any, Any]] = {}

    def close(self) -> None:
        close_function(self._function)

    def reduce(self, value1: Any, value2: Any) -> Any:
        if self._left <= 0:
            return self._reduce(value1, value2)
        self._left -= 1
        first, second, before = copy.deepcopy((value1, value2, digest(value1)))
        result = self._reduce(value1, value2)
        example = self._example(first, second, self._made_of.pop(before, None), result)
        if example:
            self._left = 0
            self._found.add(example)
        elif len(self._made_of) < _REMEMBERED:
            self._made_of[digest(result)] = (first, second)
        return result

    def _example(self, first: Any, second: Any, made_of: tuple[Any, Any] | None, result: Any) -> str:
        """Says what another order or grouping of the same records gives, if it gives something else; else ""."""
        reduce, copied = self._reduce, copy.deepcopy
        if made_of is None:
            exchanged = self._try(lambda: reduce(copied(second), copied(first)))
            shown, others = f"{text(first)} and {text(second)}", {"with the two exchanged": exchanged}
        else:
            one, two = made_of
            shown = f"{text(one)}, {text(two)} and {text(second)}"
            others = {
                "with the last two exchanged": self._try(
                    lambda: reduce(reduce(copied(one), copied(second)), copied(two))
                ),
                "with the last two reduced first": self._try(
                    lambda: reduce(copied(one), reduce(copied(two), copied(second)))
                ),
            }
        expected = digest(result), text(result)
        return next(
            (
                f"of {shown} it makes {expected[1]}, {how} {found[1]}"
                for how, found in others.items()
                if found[0] != expected[0]
            ),
            "",
        )

    def _try(self, reduced: Any) -> tuple[bytes, str]:
        try:
            found = reduced()
            return digest(found), text(found)
        except Exception as error:  # user code may raise anything
            return b"", f"an error: {type(error).__name__}: {error}"
