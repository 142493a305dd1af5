"""A harness on each state backend, for tests of operators with keyed state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from yarrow.testing.operator_harness import OperatorHarness


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., OperatorHarness]]:
    """Opens a harness on a backend: run(what stands behind the stream)."""
    opened: list[OperatorHarness] = []

    def start(fragment: Any, **settings: Any) -> OperatorHarness:
        opened.append(
            OperatorHarness(fragment, configuration={"state.backend.type": request.param}, **settings)
        )
        return opened[-1]

    yield start
    for harness in opened:
        harness.close()
