"""The values of `execution.target`."""

from __future__ import annotations

from typing import Final

LOCAL: Final = "local"
REMOTE: Final = "remote"
#: `-m` of Flink's 1.x command lines.
YARN_CLUSTER: Final = "yarn-cluster"
YARN_SESSION: Final = "yarn-session"
YARN_PER_JOB: Final = "yarn-per-job"
YARN_APPLICATION: Final = "yarn-application"
YARN_TARGETS: Final = (YARN_SESSION, YARN_PER_JOB, YARN_APPLICATION)
