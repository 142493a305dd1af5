"""The executed module of a YARN container: `python -m yarrow.container.process.yarn_task_executor`.

Owner: its main thread. Must not import at the top what its template does without: the template is a fork of it.
It removes its own folder, and no file that YARN brought. See container_task_executor for the process itself.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile

from yarrow.container.launch.forked_template import fork_template
from yarrow.container.launch.process_start import DEFAULT_ENTRY, set_process_name

_WORKING_DIRECTORY = "yarrow-te-"


def main(worker_entry: str = DEFAULT_ENTRY) -> int:
    """Runs the process; its exit status is 0 when it was released, 1 when it failed."""
    set_process_name("yarrow-taskexec")
    working_directory = tempfile.mkdtemp(prefix=_WORKING_DIRECTORY, dir=os.getcwd())
    # Temporary files, also of C and user code, stay inside the container.
    os.environ["TMPDIR"] = tempfile.tempdir = working_directory

    def remove_files() -> None:
        shutil.rmtree(working_directory, ignore_errors=True)

    try:
        # Imports leave next to no garbage, and what they make stays: no collection looks at it, now or later.
        gc.disable()
        template = fork_template(worker_entry)
        from yarrow.container.process.container_task_executor import run_in_container

        gc.freeze()
        gc.enable()
        return run_in_container(worker_entry, template, working_directory, remove_files)
    finally:
        remove_files()


if __name__ == "__main__":
    sys.exit(main())
