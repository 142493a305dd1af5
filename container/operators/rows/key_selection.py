"""Code that computes the key of each row, with the keys of a whole chunk told in advance where the state asks for it.

Owner: the task thread while it compiles. Key selectors are called once a row in every case. Only what does no more than
read fields of the row is written into the code instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.field_readers import generate_call
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import KeysAhead


class KeyReader(Protocol):
    """A value table or a keyed state backend."""

    @property
    def wants_keys(self) -> bool:
        """Whether it is to be told the keys of a chunk before its rows are run."""
        ...

    def prefetch(self, keys: Sequence[Any]) -> None:
        """The raw keys of the rows that come."""
        ...


def generate_key(
    code: CodeWriter, selector: Callable[[Any], Any], value: str, reader: KeyReader | None
) -> str:
    """Code that computes the raw key of a row; gives its variable.

    `reader` is what may ask for the keys of the chunk: for the head of a chain only, whose rows are the function's
    parameter `rows`; None for operators behind others.
    """
    key = code.fresh("k")
    if reader is not None and reader.wants_keys:
        next_key = code.fresh("next_key")
        keys = code.fresh("keys")
        code.keys_ahead = KeysAhead(selector, reader.prefetch)
        code.at_start(f"rows, {keys} = {code.bind('keys_of', code.keys_ahead.of_chunk)}(rows)")
        code.at_start(f"{next_key} = {keys}.__next__")
        code.line(f"{key} = {next_key}()")
    else:
        generate_call(code, "key", selector, value, key)
    return key


def generate_current_key(
    code: CodeWriter, selector: Callable[[Any], Any], value: str, state: KeyedStateBackend, is_head: bool
) -> None:
    """Code that makes the key of a row the current one of the operator's keyed state."""
    key = generate_key(code, selector, value, state if is_head else None)
    code.line(f"{code.bind('state', state)}.current_key = {key}")
