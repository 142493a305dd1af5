"""Samples of data sets, and operations that programs write themselves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.data_sets import data_set_environment, rows_of
from yarrow.batch.dataset import CustomUnaryOperation, DataSet, DataSetUtils
from yarrow.common import Types
from yarrow.runtime.common.errors import InvalidProgramError


def numbers(count: int, parallelism: int = 3) -> DataSet:
    return data_set_environment(parallelism).from_collection(range(count), Types.LONG()).rebalance()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.integers(0, 50), st.integers(1, 3), st.booleans(), st.integers())
def test_a_sample_has_the_size_that_it_was_asked_for(
    count: int, size: int, parallelism: int, with_replacement: bool, seed: int
) -> None:
    data = numbers(count, parallelism)
    drawn = rows_of(DataSetUtils.sample_with_size(data, with_replacement, size, seed))
    assert set(drawn) <= set(range(count))
    if with_replacement:
        assert len(drawn) == (size if count else 0)
    else:
        assert len(set(drawn)) == len(drawn) == min(size, count)


@pytest.mark.slow
def test_each_row_is_as_likely_as_any_other() -> None:
    drawn: Counter[int] = Counter()
    for seed in range(150):
        drawn.update(rows_of(DataSetUtils.sample_with_size(numbers(6), False, 2, seed)))
    assert drawn.total() == 300
    assert all(25 < drawn[number] < 80 for number in range(6)), drawn


def test_a_fraction_is_that_of_the_rows() -> None:
    def size(fraction: float, *, with_replacement: bool) -> int:
        return len(rows_of(DataSetUtils.sample(numbers(2000), with_replacement, fraction, 7)))

    assert size(0.0, with_replacement=False) == size(0.0, with_replacement=True) == 0
    assert size(1.0, with_replacement=False) == 2000
    assert 400 < size(0.25, with_replacement=False) < 600
    assert 400 < size(0.25, with_replacement=True) < 600
    assert 5500 < size(3.0, with_replacement=True) < 6500


def test_a_seed_gives_the_same_sample_again_and_another_one_another() -> None:
    def sample(seed: int | None) -> list[int]:
        return sorted(rows_of(DataSetUtils.sample(numbers(200), False, 0.5, seed)))

    assert sample(1) == sample(1) != sample(2)
    assert sample(None) != sample(None)


def test_bad_samples_are_refused_at_the_call() -> None:
    for fraction in (-0.1, 1.1, float("nan")):
        with pytest.raises(InvalidProgramError, match="sample takes a fraction from 0 to 1"):
            DataSetUtils.sample(numbers(1), False, fraction)
    for size in (-1, True, 1.5):
        with pytest.raises(InvalidProgramError, match="sample_with_size takes the number of rows"):
            DataSetUtils.sample_with_size(numbers(1), True, size)  # type: ignore[arg-type]


class Doubled(CustomUnaryOperation):
    """Twice each number."""

    def set_input(self, input_data: DataSet) -> None:
        self._input = input_data

    def create_result(self) -> DataSet:
        return self._input.map(lambda number: 2 * number)


def test_operations_of_the_programs_own() -> None:
    assert sorted(rows_of(numbers(3).run_operation(Doubled()))) == [0, 2, 4]
    with pytest.raises(TypeError, match="run_operation takes a CustomUnaryOperation"):
        numbers(3).run_operation(lambda data: data)  # type: ignore[arg-type]
