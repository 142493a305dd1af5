"""The TaskExecutor process with played workers: what `python -m` of its main is, but for the workers."""

from __future__ import annotations

import sys

from tests.cluster.task_executor.fake_worker import ENTRY
from yarrow.container.process.task_executor_main import main

if __name__ == "__main__":
    sys.exit(main(ENTRY))
