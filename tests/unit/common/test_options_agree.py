"""The options that ExecutionConfig and CheckpointConfig write are those that the cluster reads."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import yarrow.runtime.config.options as cluster_options
from yarrow.common import ConfigOption, pipeline_options
from yarrow.datastream import checkpoint_options
from yarrow.runtime.config.known_keys import WITHOUT_EFFECT
from yarrow.runtime.config.values.option import EngineOption

#: Keys that no part of the cluster reads yet; may only shrink.
NOT_READ_YET = {"pipeline.generic-types", "execution.checkpointing.snapshot-compression"}


def vocabulary() -> dict[str, ConfigOption[Any]]:
    """The options of programs by key."""
    values = [*vars(pipeline_options).values(), *vars(checkpoint_options).values()]
    return {value.key(): value for value in values if isinstance(value, ConfigOption)}


def cluster() -> dict[str, EngineOption[Any]]:
    """The options of the cluster by key."""
    found: dict[str, EngineOption[Any]] = {}
    for info in pkgutil.iter_modules(cluster_options.__path__):
        module = importlib.import_module(f"{cluster_options.__name__}.{info.name}")
        found.update({v.key: v for v in vars(module).values() if isinstance(v, EngineOption)})
    return found


def test_every_key_is_read_by_the_cluster_or_listed() -> None:
    assert vocabulary().keys() - cluster().keys() - WITHOUT_EFFECT.keys() == NOT_READ_YET


@pytest.mark.parametrize("key", sorted(vocabulary().keys() - NOT_READ_YET - WITHOUT_EFFECT.keys()))
def test_defaults_agree_through_the_text_form(key: str) -> None:
    ours, theirs = vocabulary()[key], cluster()[key]
    if not ours.has_default_value():
        assert theirs.default is None or theirs.default == {}
        return
    assert theirs.parse(ours.render(ours.default_value())) == theirs.default
    assert ours.parse(theirs.default_text) == ours.default_value()


@pytest.mark.parametrize("key", sorted(vocabulary().keys() - NOT_READ_YET - WITHOUT_EFFECT.keys()))
def test_other_names_of_a_key_agree(key: str) -> None:
    assert set(vocabulary()[key].fallback_keys()) <= set(cluster()[key].names)
