"""Count windows over bounded input: full windows only, whatever the parallelism."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.batch_runner import collect, shuffled
from tests.unit.container.batch.test_joins import SMALL, rows, timed
from tests.unit.runtime.graph.programs import environment


@pytest.mark.parametrize("parallelism", [1, 3])
def test_each_key_has_its_full_windows(parallelism: int) -> None:
    found, env = rows(1, "a"), environment(parallelism)
    pairs = timed(env, found).map(lambda row: (row[0], 1))
    windows = pairs.key_by(lambda pair: pair[0]).count_window(4)
    made = collect(env, windows.reduce(lambda a, b: (a[0], a[1] + b[1])), settings=SMALL, deal=shuffled(1))
    full = Counter({key: count // 4 for key, count in Counter(row[0] for row in found).items()})
    assert Counter(made) == Counter({(key, 4): count for key, count in full.items() if count})
    assert made


def test_windows_of_a_whole_input_are_full() -> None:
    found, env = rows(2, "a"), environment(3)
    made = collect(
        env,
        timed(env, found).map(lambda row: 1).count_window_all(7).reduce(lambda a, b: a + b),
        settings=SMALL,
        deal=shuffled(2),
    )
    assert made == [7] * (len(found) // 7)
