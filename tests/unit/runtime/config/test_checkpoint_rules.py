"""What must hold between the keys of checkpoints: each contradiction is named by its keys."""

from __future__ import annotations

import pytest

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import check

C = "execution.checkpointing."


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({f"{C}interval": "5 ms"}, (f"{C}interval",)),
        ({f"{C}timeout": "0 ms"}, (f"{C}timeout",)),
        (
            {f"{C}unaligned.enabled": "true", f"{C}mode": "AT_LEAST_ONCE"},
            (f"{C}unaligned.enabled", f"{C}mode"),
        ),
        (
            {f"{C}unaligned.enabled": "true", f"{C}max-concurrent-checkpoints": "2"},
            (f"{C}unaligned.enabled", f"{C}max-concurrent-checkpoints"),
        ),
        ({f"{C}storage": "cloud"}, (f"{C}storage",)),
        ({f"{C}dir": "checkpoints"}, (f"{C}dir",)),
        ({f"{C}savepoint-dir": "./savepoints"}, (f"{C}savepoint-dir",)),
        ({"state.backend.type": "rockdb"}, ("state.backend.type",)),
        ({f"{C}storage": "filesystem"}, (f"{C}storage", f"{C}dir")),
        (
            {f"{C}jobmanager-storage.max-state-size": "20 mb"},
            (f"{C}jobmanager-storage.max-state-size", "rpc.message.max-size"),
        ),
        ({"execution.state-recovery.claim-mode": "LEGACY"}, ("execution.state-recovery.claim-mode",)),
    ],
)
def test_a_contradiction_is_named(values: dict[str, str], keys: tuple[str, ...]) -> None:
    (problem,) = check(Settings(values)).problems
    assert problem.keys == keys
    assert all(key in str(problem) for key in keys)


@pytest.mark.parametrize(
    "values",
    [
        {f"{C}interval": "0 ms"},
        {f"{C}interval": "10 ms"},
        {f"{C}unaligned.enabled": "true"},
        {f"{C}max-concurrent-checkpoints": "2"},
        {f"{C}storage": "filesystem", f"{C}dir": "/chk"},
        {f"{C}dir": "file:/chk", f"{C}savepoint-dir": "hdfs:///sv"},
        {"state.backend.type": "FileSystem"},
        {"state.backend.type": "mine.backends:make"},
        {f"{C}dir": "/chk", f"{C}jobmanager-storage.max-state-size": "20 mb"},
        {"execution.savepoint.path": "/sp", "execution.savepoint-restore-mode": "CLAIM"},
    ],
)
def test_what_fits_is_accepted(values: dict[str, str]) -> None:
    assert check(Settings(values)).problems == ()
