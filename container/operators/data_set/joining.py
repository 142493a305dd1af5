"""join, co_group and cross of two data sets, and the update of a solution set.

Owner: the task thread. A join keeps the rows of the first input of a key group, and runs those of the second one past
them. If the first ones do not fit into memory, both are sorted on disk. Must not know how rows reach it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from yarrow.container.codegen.user_functions import load_function, method_of, results_of
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.data_set.paired_rows import PairedRows
from yarrow.container.operators.data_set.replayed_rows import BLOCK_ROWS, ReplayedRows
from yarrow.container.operators.data_set.sorted_rows import SortedRows, order_by
from yarrow.container.operators.data_set.two_data_sets import TwoDataSetsOperatorBase
from yarrow.container.operators.registry import runs
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.runtime.graph.data_set_spec import (
    CoGroupOperator,
    CrossOperator,
    JoinOperator,
    SolutionSetUpdateOperator,
)

_NOTHING = (None,)


class _KeyedOperator(TwoDataSetsOperatorBase):
    """The base of operators of two keyed inputs."""

    mixes_keys = True

    def __init__(self, name: str, spec: JoinOperator | CoGroupOperator | SolutionSetUpdateOperator) -> None:
        super().__init__(name, spec)
        self._selector_blobs = spec.key_selectors

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        selectors = tuple(
            method_of(load_function(blob, self.name), "get_key", self.name) for blob in self._selector_blobs
        )
        self._rows = PairedRows(self.name, selectors, self._budget, self._directory)

    def close(self) -> None:
        if self.is_set_up:
            self._rows.clear()
        super().close()

    def _take_first(self, rows: list[Any]) -> Iterable[Any]:
        self._rows.add(0, rows)
        return ()


@runs(JoinOperator)
class JoiningOperator(_KeyedOperator):
    """Runs inner and outer joins."""

    method = "join"

    def __init__(self, name: str, spec: JoinOperator) -> None:
        super().__init__(name, spec)
        self._kind = spec.kind
        #: Keys of the first input that have met a row of the second one, if the others count.
        self._met: set[Any] = set()

    def _take_second(self, rows: list[Any]) -> Iterable[Any]:
        if self._rows.is_spilled:
            self._rows.add(1, rows)
            return ()
        return self._joined(rows)

    def _joined(self, rows: list[Any]) -> Iterator[Any]:
        table, kind = self._rows.tables[0], self._kind
        met = self._met.add if kind.keeps_first else None
        key_of, results = self._rows.key_of, self._results
        for row in rows:
            key = key_of(1, row)
            partners = table.get(key)
            if partners is not None:
                if met is not None:
                    met(key)
                yield from results(partners, row)
            elif kind.keeps_second:
                yield from results(_NOTHING, row)

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        if self._rows.is_spilled:
            for lefts, rights in self._rows.by_key():
                for result in self._joined_from_disk(lefts, iter(rights)):
                    yield result, None
        elif self._kind.keeps_first:
            for key, partners in self._rows.tables[0].items():
                if key not in self._met:
                    for result in self._results(partners, None):
                        yield result, None
        self._met.clear()
        self._rows.clear()

    def _joined_from_disk(self, lefts: Iterable[Any], rights: Iterator[Any]) -> Iterator[Any]:
        """The results of one key, whose rows may exceed the memory on both sides."""
        has_left = next(iter(lefts), self) is not self
        block = list(islice(rights, BLOCK_ROWS))
        if not block and self._kind.keeps_first:
            yield from self._results(lefts, None)
        if not has_left:
            lefts = _NOTHING if self._kind.keeps_second else ()
        while block:
            for left in lefts:
                for right in block:
                    yield from self._results_of(left, right)
            block = list(islice(rights, BLOCK_ROWS))


@runs(CoGroupOperator)
class CoGroupingOperator(_KeyedOperator):
    """Runs co_group: the function gets the rows of a key of both inputs."""

    method = "co_group"

    def __init__(self, name: str, spec: CoGroupOperator) -> None:
        super().__init__(name, spec)
        self._orders = spec.orders

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        # Both sides of a key may wait at the same time.
        self._sorted = [
            SortedRows(self.name, order_by(fields, self.name), self._budget // 2, self._directory)
            if fields
            else None
            for fields in self._orders
        ]

    def close(self) -> None:
        if self.is_set_up:
            self._forget_order()
        super().close()

    def _take_second(self, rows: list[Any]) -> Iterable[Any]:
        self._rows.add(1, rows)
        return ()

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        for sides in self._rows.by_key():
            for result in self._grouped(sides):
                yield result, None
            self._forget_order()
        self._rows.clear()

    def _forget_order(self) -> None:
        for each in self._sorted:
            if each is not None:
                each.clear()

    def _grouped(self, sides: Sequence[Iterable[Any]]) -> Iterator[Any]:
        lefts, rights = map(_in_order, self._sorted, sides)
        try:
            yield from results_of(self._call(iter(lefts), iter(rights)))
        except (OperatorFailure, GeneratorExit):
            raise
        except BaseException as error:  # user code may raise anything
            raise OperatorFailure(self.name, _first_of_key(sides), error) from error


def _first_of_key(sides: Sequence[Iterable[Any]]) -> str:
    """The first row of the key, as failures name it."""
    return next((f"(rows from {short_record(row)} on)" for side in sides for row in side), "")


def _in_order(rows: SortedRows | None, side: Iterable[Any]) -> Iterable[Any]:
    """The rows of one side of a key, sorted by `rows`; None = as they come."""
    if rows is None:
        return side
    following = iter(side)
    while block := list(islice(following, BLOCK_ROWS)):
        rows.add(block)
    return rows.in_order()


@runs(SolutionSetUpdateOperator)
class UpdatingOperator(_KeyedOperator):
    """Runs the update of a solution set."""

    def _take_second(self, rows: list[Any]) -> Iterable[Any]:
        self._rows.add(1, rows)
        return ()

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        for olds, news in self._rows.by_key():
            yield _last_of(chain(olds, news)), None
        self._rows.clear()


def _last_of(rows: Iterable[Any]) -> Any:
    return deque(rows, 1)[0]


@runs(CrossOperator)
class CrossingOperator(TwoDataSetsOperatorBase):
    """Runs cross: keeps the broadcast input, and runs each row of the other one past it."""

    method = "cross"

    def __init__(self, name: str, spec: CrossOperator) -> None:
        super().__init__(name, spec)
        self._broadcast = spec.broadcast_input

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._kept = ReplayedRows(self._budget, self._directory)

    def close(self) -> None:
        if self.is_set_up:
            self._kept.close()
        super().close()

    def _take_first(self, rows: list[Any]) -> Iterable[Any]:
        return self._take(0, rows)

    def _take_second(self, rows: list[Any]) -> Iterable[Any]:
        return self._take(1, rows)

    def _take(self, number: int, rows: list[Any]) -> Iterable[Any]:
        if number == self._broadcast:
            self._kept.add(rows)
            return ()
        return self._crossed(rows)

    def _crossed(self, rows: list[Any]) -> Iterator[Any]:
        for kept in self._kept:
            for row in rows:
                yield from (
                    self._results_of(kept, row) if self._broadcast == 0 else self._results_of(row, kept)
                )
