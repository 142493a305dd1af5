"""Tools for tests of programs: the operator harness, crashes at each barrier, scripted sources, a small cluster.

Names are loaded when they are first used, so that a worker which loads a source of a test loads nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yarrow.testing.crash_checks import CrashCheckError, check_crashes
    from yarrow.testing.harness_snapshot import HarnessSnapshot
    from yarrow.testing.mini_cluster import MiniCluster
    from yarrow.testing.operator_harness import FragmentFailedError, HarnessState, OperatorHarness
    from yarrow.testing.scripted_source import (
        CheckpointGate,
        Crash,
        Gate,
        InjectedCrashError,
        ScriptedSource,
    )

__all__ = [
    "CheckpointGate",
    "Crash",
    "CrashCheckError",
    "FragmentFailedError",
    "Gate",
    "HarnessSnapshot",
    "HarnessState",
    "InjectedCrashError",
    "MiniCluster",
    "OperatorHarness",
    "ScriptedSource",
    "check_crashes",
]

_MODULES = {
    "CheckpointGate": "scripted_source",
    "Crash": "scripted_source",
    "CrashCheckError": "crash_checks",
    "FragmentFailedError": "operator_harness",
    "Gate": "scripted_source",
    "HarnessSnapshot": "harness_snapshot",
    "HarnessState": "operator_harness",
    "InjectedCrashError": "scripted_source",
    "MiniCluster": "mini_cluster",
    "OperatorHarness": "operator_harness",
    "ScriptedSource": "scripted_source",
    "check_crashes": "crash_checks",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
