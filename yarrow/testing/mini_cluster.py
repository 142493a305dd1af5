"""MiniCluster under the name by which programs' own tests import it."""

from __future__ import annotations

from yarrow.embedded.mini_cluster import MiniCluster

__all__ = ["MiniCluster"]
