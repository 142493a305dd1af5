"""Routing by key: the cache, when it gives way to the hash of every key, and that both agree."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

import pytest

from yarrow.container.chain import routing
from yarrow.container.chain.routing import KeyTargets, generate_group
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.runtime.data.key_groups import group_of_raw_key
from yarrow.testing.operator_harness import OperatorHarness

CACHE = 100
DIRECT = 1000
CHUNK = 10


@pytest.fixture(autouse=True)
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "CACHE_SIZE", CACHE)
    monkeypatch.setattr(routing, "_DIRECT_ROWS", DIRECT)


class Rows:
    """Routes chunks of rows as generated code does; notes how many chunks went by the cache."""

    def __init__(self) -> None:
        self.routed = 0
        self.by_cache = 0
        self.misses = 0
        self.targets = KeyTargets(list(range(4096)), 4096, lambda: self.routed)

    def route(self, keys: list[Any]) -> list[int]:
        found = []
        is_direct = self.targets.is_direct()
        self.by_cache += not is_direct
        for key in keys:
            if is_direct:
                target = self.targets.by_group[group_of_raw_key(key, 4096)]
            else:
                try:
                    target = self.targets.cache[key]
                except (KeyError, TypeError):
                    self.misses += 1
                    target = self.targets.miss(key)
            found.append(target)
            self.routed += 1
        return found


def chunks_by_cache(rows: Rows, chunks: int, key: Any) -> int:
    before = rows.by_cache
    for _ in range(chunks):
        rows.route([key() for _ in range(CHUNK)])
    return rows.by_cache - before


def test_keys_that_come_again_stay_with_the_cache() -> None:
    rows, number = Rows(), count()
    assert chunks_by_cache(rows, 300, lambda: next(number) % CACHE) == 300
    assert rows.misses == CACHE


def test_more_keys_than_fit_stay_with_the_cache_while_most_are_found() -> None:
    rows, number = Rows(), count()
    # Each key five times in a row, then never again.
    assert chunks_by_cache(rows, 300, lambda: next(number) // 5) == 300


def test_keys_that_never_come_again_go_by_the_cache_in_turns() -> None:
    rows, number = Rows(), count()
    assert chunks_by_cache(rows, 11, lambda: next(number)) == 11  # fills it, and notes that nothing was found
    assert chunks_by_cache(rows, DIRECT // CHUNK - 1, lambda: next(number)) == 0
    assert len(rows.targets.cache) <= CHUNK  # nothing is kept that is not asked for
    assert 0 < chunks_by_cache(rows, DIRECT // CHUNK, lambda: next(number)) <= 12


def test_the_cache_comes_back_when_keys_do() -> None:
    rows, number = Rows(), count()
    chunks_by_cache(rows, 20, lambda: next(number))
    chunks_by_cache(rows, DIRECT // CHUNK, lambda: next(number) % 7)
    assert chunks_by_cache(rows, 100, lambda: next(number) % 7) == 100


def test_the_target_of_a_key_is_always_the_same() -> None:
    rows, number = Rows(), count()
    keys = ["a", "", "x" * 300, "\ud800", 1, True, 1.0, None, b"a", ("a", 1)]
    first = rows.route(keys)
    for _ in range(400):
        rows.route([f"key-{next(number)}" for _ in range(CHUNK)])
        assert rows.route(keys) == first


@pytest.mark.parametrize("max_parallelism", [128, 100, 32768])
def test_the_hash_that_is_written_into_the_code_is_that_of_the_function(max_parallelism: int) -> None:
    keys = [
        "a",
        "",
        "\xe9" * 100,
        "x" * 255,
        "x" * 256,
        "\xe9" * 200,
        "\ud800",
        1,
        -1,
        1 << 70,
        True,
        1.5,
        None,
        b"a",
    ]
    code = CodeWriter()
    with code.block("for key in keys:"):
        code.line(f"groups.append({generate_group(code, 'key', max_parallelism)})")
    groups: list[int] = []
    code.compile("groups_of", "keys, groups").function(keys, groups)
    assert groups == [group_of_raw_key(key, max_parallelism) for key in keys]


def test_a_job_over_distinct_keys_keeps_its_sums() -> None:
    keys = [f"key-{number % 700}" for number in range(3000)]
    with OperatorHarness(
        lambda rows: rows.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    ) as harness:
        for start in range(0, len(keys), 50):
            harness.push(*[(key, 1) for key in keys[start : start + 50]])
        assert len(harness.output) == len(keys)
        assert dict(harness.output) == Counter(keys)
