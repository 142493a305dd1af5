"""Generates code that puts a row into the buffer of the right channel, for each of the eight partitioners.

Owner: the task thread while it compiles a chain, then the routers that the chain binds. Routing by key
computes the canonical key once for each distinct key. A bounded cache maps raw keys to buffers. If keys
rarely repeat, each key is routed by its own hash instead.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.protocol.failure import short_record
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.randomness import new_generator
from yarrow.runtime.data.key_groups import (
    TEXT_HEADS,
    group_of_raw_key,
    key_group_of,
    operator_index_for_key_group,
    xxh3,
)
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.operator_spec import PartitionerKind

T = TypeVar("T")
#: Most distinct keys in the cache.
CACHE_SIZE = 1 << 17
#: Rows that bypass the cache before it is tried again.
_DIRECT_ROWS = 32 * CACHE_SIZE


class InvalidPartitionError(YarrowError):
    """A custom partitioner returned a channel that does not exist."""


class KeyTargets(Generic[T]):
    """Maps a raw key to the target of its channel, with a cache while that pays.

    `cache[k]` is the fast path, and `miss(k)` follows a KeyError or TypeError. If `is_direct()`, asked once a
    chunk, says that keys rarely repeat, the loop uses `by_group[group_of_raw_key(k, max_parallelism)]`
    instead. Both ways give the same target.
    """

    def __init__(
        self, targets: Sequence[T], max_parallelism: int, rows_routed: Callable[[], int] = lambda: 0
    ) -> None:
        """`rows_routed` returns the number of routed rows so far."""
        self.cache: dict[Any, T] = {}
        self._max_parallelism = max_parallelism
        self._rows_routed = rows_routed
        #: Routed rows when the cache was last empty.
        self._empty_at = 0
        #: While direct: the number of routed rows at which the cache is tried again.
        self._direct_until: int | None = None
        count = len(targets)
        #: Target by key group.
        self.by_group = [
            targets[operator_index_for_key_group(max_parallelism, count, group)]
            for group in range(max_parallelism)
        ]

    def is_direct(self) -> bool:
        """Whether the next rows are faster without the cache."""
        if self._direct_until is not None and self._rows_routed() >= self._direct_until:
            self._direct_until = None
            self._clear()
        return self._direct_until is not None

    def miss(self, key: Any) -> T:
        """The target of a key that is not cached. Raises UnsupportedKeyError."""
        canonical = canonicalize(key)
        target = self.by_group[key_group_of(canonical, self._max_parallelism)]
        if len(self.cache) >= CACHE_SIZE:
            missed = len(self.cache)
            found = self._rows_routed() - self._empty_at - missed
            if found < missed:
                self._direct_until = self._rows_routed() + _DIRECT_ROWS
            self._clear()
        self.cache[canonical] = target
        return target

    def _clear(self) -> None:
        self.cache.clear()
        self._empty_at = self._rows_routed()


class CustomTargets(Generic[T]):
    """Calls the user's partitioner and checks its answer."""

    def __init__(self, targets: Sequence[T], partition: Callable[[Any, int], Any], edge_name: str) -> None:
        self._targets = targets
        self._partition = partition
        self._edge_name = edge_name

    def target(self, key: Any) -> T:
        """The target of a key. Raises InvalidPartitionError with key and answer."""
        count = len(self._targets)
        answer = self._partition(key, count)
        try:
            index = operator.index(answer)
        except TypeError:
            index = -1
        if not 0 <= index < count:
            raise InvalidPartitionError(
                f"the partitioner of {self._edge_name} gave {short_record(answer)} for the key {short_record(key)}; "
                f"expected a whole number from 0 to {count - 1}"
            )
        return self._targets[index]


def generate_partition(
    code: CodeWriter,
    partition: ResultPartition,
    fixed: str,
    timestamp: str | None,
    *,
    max_parallelism: int,
    name: str,
) -> None:
    """Code that gives the fixed value (and its timestamp) to the partition."""

    def route(row: str) -> None:
        _generate_append(code, partition, row, timestamp, max_parallelism, name)

    partition.generate_row(code, fixed, timestamp, route)


def _generate_append(
    code: CodeWriter,
    partition: ResultPartition,
    value: str,
    timestamp: str | None,
    max_parallelism: int,
    name: str,
) -> None:
    """Code that appends `value` (and its timestamp) to the buffer of its channel."""
    with_time = timestamp is not None
    if with_time and _goes_to_first(partition):
        code.line(f"{code.bind('out', partition.buffers[0].append)}({value})")
        code.line(f"{code.bind('out', partition.timestamps[0].append)}({timestamp})")
        return
    targets: list[Any] = [
        (rows.append, stamps.append) if with_time else rows.append
        for rows, stamps in zip(partition.buffers, partition.timestamps, strict=True)
    ]
    target = _generate_target(code, partition, targets, value, max_parallelism, name)
    if with_time:
        row_append, stamp_append = code.fresh("a"), code.fresh("s")
        code.line(f"{row_append}, {stamp_append} = {target}")
        code.line(f"{row_append}({value})")
        code.line(f"{stamp_append}({timestamp})")
    else:
        code.line(f"{target}({value})")


def _goes_to_first(partition: ResultPartition) -> bool:
    """Whether all rows go to the first channel, and no function of the user's is asked."""
    kind = partition.edge.partitioner.kind
    asks = kind in (PartitionerKind.CUSTOM, PartitionerKind.KEY_GROUP)
    return not asks and (len(partition.buffers) == 1 or kind is PartitionerKind.GLOBAL)


def _generate_target(
    code: CodeWriter,
    partition: ResultPartition,
    targets: list[Any],
    value: str,
    max_parallelism: int,
    name: str,
) -> str:
    spec = partition.edge.partitioner
    if spec.kind is PartitionerKind.KEY_GROUP and spec.function is None:
        return _generate_key_target(code, partition, targets, value, max_parallelism, name)
    if spec.kind in (PartitionerKind.CUSTOM, PartitionerKind.KEY_GROUP):
        assert spec.key_selector is not None and spec.function is not None
        partition_function = method_of(load_function(spec.function, name), "partition", name)
        custom = CustomTargets(targets, partition_function, name)
        selector = method_of(load_function(spec.key_selector, name), "get_key", name)
        custom_key = code.fresh("k")
        generate_call(code, "key", selector, [value], custom_key)
        return f"{code.bind('target', custom.target)}({custom_key})"
    if _goes_to_first(partition):
        return code.bind("out", targets[0])
    if spec.kind is PartitionerKind.SHUFFLE:
        random = code.bind("random", new_generator(partition.seed).random)
        return f"{code.bind('outs', targets)}[int({random}() * {len(targets)})]"
    # REBALANCE, RESCALE, and a FORWARD edge that became pointwise over several channels. Each producer begins
    # at another channel. Otherwise, with few rows from many producers, the first channel would get them all.
    first = new_generator(partition.seed).randrange(len(targets))
    turn = itertools.cycle(targets[first:] + targets[:first])
    return f"{code.bind('turn', turn.__next__)}()"


def generate_group(code: CodeWriter, key: str, max_parallelism: int) -> str:
    """A variable with the key group: `group_of_raw_key`, with the hash of plain texts written out."""
    group, encoded = code.fresh("g"), code.fresh("e")
    call = f"{group} = {code.bind_as('group_of', group_of_raw_key)}({key}, {int(max_parallelism)})"
    heads, digest = code.bind_as("TEXT_HEADS", TEXT_HEADS), code.bind_as("xxh3", xxh3)
    with code.block(f"if type({key}) is str:"):
        with code.block("try:"):
            code.line(f"{encoded} = {key}.encode()")
            code.line(f"{group} = {digest}({heads}[len({encoded})] + {encoded}) % {int(max_parallelism)}")
        with code.block("except (UnicodeEncodeError, IndexError):"):
            code.line(call)
    with code.block("else:"):
        code.line(call)
    return group


def _generate_key_target(
    code: CodeWriter,
    partition: ResultPartition,
    targets: list[Any],
    value: str,
    max_parallelism: int,
    name: str,
) -> str:
    selector_blob = partition.edge.partitioner.key_selector
    assert selector_blob is not None
    router = KeyTargets(targets, max_parallelism, lambda: partition.records_taken)
    selector = method_of(load_function(selector_blob, name), "get_key", name)
    key, target = code.fresh("k"), code.fresh("a")
    generate_call(code, "key", selector, [value], key)
    is_direct = code.fresh("d")
    code.at_start(f"{is_direct} = {code.bind('is_direct', router.is_direct)}()")
    with code.block(f"if {is_direct}:"):
        by_group = code.bind("by_group", router.by_group)
        code.line(f"{target} = {by_group}[{generate_group(code, key, max_parallelism)}]")
    with code.block("else:"):
        with code.block("try:"):
            code.line(f"{target} = {code.bind('cache', router.cache)}[{key}]")
        with code.block("except (KeyError, TypeError):"):
            code.line(f"{target} = {code.bind('miss', router.miss)}({key})")
    return target
