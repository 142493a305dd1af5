"""Environments for tests of graphs: fixed parallelism and ids that count."""

from __future__ import annotations

from tests.support.counting_ids import CountingIdFactory
from yarrow.common.configuration import Configuration
from yarrow.datastream import StreamExecutionEnvironment


def environment(parallelism: int = 2, settings: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    """An environment with this parallelism and these settings."""
    values = {"parallelism.default": str(parallelism), **(settings or {})}
    return StreamExecutionEnvironment(Configuration.from_dict(values), CountingIdFactory())
