"""Settings of the control plane from a configuration."""

from __future__ import annotations

import pytest

from yarrow.am.cluster_settings import control_plane_settings
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.config.settings import Settings


def test_high_availability_is_refused_while_there_is_no_standby() -> None:
    config = Settings({"high-availability.type": "zookeeper"}, "a test")
    with pytest.raises(UnsupportedFeatureError, match=r"high-availability\.type: zookeeper"):
        control_plane_settings(config, "/nowhere", 1, can_request=False)


def test_without_it_the_cluster_has_its_settings() -> None:
    config = Settings({"high-availability.type": "none", "cluster.evenly-spread-out-slots": "true"}, "a test")
    assert control_plane_settings(config, "/nowhere", 3, can_request=False).resource_manager.slots.evenly_spread_out
