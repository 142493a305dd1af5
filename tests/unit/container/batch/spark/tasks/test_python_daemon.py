"""The process from which Spark forks its Python workers: what it has imported costs no worker's collections."""

from __future__ import annotations

import subprocess
import sys

#: In place of Spark's own loop: a worker's collection behind a task, and what it looks at.
SERVE = """
import gc, os
from yarrow.container.batch.spark.tasks import python_daemon

imported = python_daemon._imported

def serve():
    pid = os.fork()
    if pid == 0:
        gc.collect()
        print(len(gc.get_objects()), gc.get_freeze_count(), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

def with_modules():
    imported()
    return serve

python_daemon._imported = with_modules
python_daemon.main()
"""


def test_collections_of_workers_skip_what_the_daemon_has_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE], capture_output=True, text=True, check=True, timeout=300
    )
    looked_at, frozen = map(int, done.stdout.split())
    assert frozen > 10_000, "PySpark, pyarrow and the engine"
    assert looked_at < frozen / 100
