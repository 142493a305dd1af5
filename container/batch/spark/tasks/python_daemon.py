"""The process from which Spark forks its Python workers: the engine is imported once, before the first fork.

Owner: its only thread. Spark starts it as `python -m` this module and closes its standard input at the end.
The kernel ends the workers with it, even inside a call that holds the interpreter for ever.
"""

from __future__ import annotations

import os

from pyspark import daemon, worker

from yarrow.container.batch import batch_task, chunk
from yarrow.container.batch.spark.tasks import stage_function
from yarrow.container.launch.process_start import set_process_name
from yarrow.container.launch.worker_process import die_with_parent, reseed

#: Imported here so that each worker has them: forking shares their memory.
PRELOADED = (batch_task, chunk, stage_function, worker)


def _in_worker(parent: int) -> None:
    die_with_parent(parent)
    set_process_name("yarrow-batch")
    reseed()


def main() -> None:
    """Serves until Spark closes standard input."""
    parent = os.getpid()
    set_process_name("yarrow-batchd")
    os.register_at_fork(after_in_child=lambda: _in_worker(parent))
    daemon.manager()


if __name__ == "__main__":
    main()
