"""Generates code that computes the key of each row; state may get the keys of a whole chunk in advance.

Owner: the task thread while it compiles. Each row asks its key selector once in every case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import KeysAhead
from yarrow.runtime.data.keys import canonicalize


class KeyReader(Protocol):
    """Takes keys in advance: a value table or a keyed state backend."""

    @property
    def wants_keys(self) -> bool:
        """Whether it needs the keys of a chunk before the rows run."""
        ...

    def prefetch(self, keys: Sequence[Any]) -> None:
        """Takes the raw keys of the coming rows."""
        ...


def generate_key(
    code: CodeWriter, selector: Callable[[Any], Any], value: str, reader: KeyReader | None
) -> str:
    """Generates code that computes the raw key of a row; returns its variable.

    `reader` may ask for the keys of the chunk. It is set only for the head of a chain, whose rows are the
    function's parameter `rows`; operators behind others pass None.
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
        generate_call(code, "key", selector, [value], key)
    return key


def generate_current_key(
    code: CodeWriter, selector: Callable[[Any], Any], value: str, state: KeyedStateBackend, is_head: bool
) -> None:
    """Generates code that makes the key of a row the current one of the operator's keyed state."""
    key = generate_key(code, selector, value, state if is_head else None)
    code.line(f"{code.bind('state', state)}.current_key = {key}")


def generate_canonical_key(code: CodeWriter, key: str) -> str:
    """Generates code for the canonical form of a key; returns its variable. Whole numbers and str have that form."""
    canonical = code.fresh("c")
    code.line(f"{canonical} = {key}")
    with code.block(f"if not ({key}.__class__ is int or {key}.__class__ is str):"):
        code.line(f"{canonical} = {code.bind('canonicalize', canonicalize)}({key})")
    return canonical
