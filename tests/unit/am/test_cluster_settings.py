"""Settings of the control plane from a configuration."""

from __future__ import annotations

from yarrow.am.cluster_settings import control_plane_settings
from yarrow.runtime.config.settings import Settings


def test_a_cluster_has_the_settings_of_its_configuration() -> None:
    config = Settings({"rest.await-leader-timeout": "7 s", "cluster.evenly-spread-out-slots": "true"}, "a test")
    settings = control_plane_settings(config, "/nowhere", 3, can_request=False)
    assert settings.resource_manager.slots.evenly_spread_out
    assert settings.leader_timeout == 7
