"""shell: a Python prompt with an environment `env`, embedded or on a cluster; attached only.

Owner: the main thread. The prompt is `__main__`, so that its functions and classes are shipped like those of
a script.
"""

from __future__ import annotations

import code
import contextlib
import sys
from types import ModuleType
from typing import Any

from yarrow.client.rest.masters import rest_address
from yarrow.client.targets import LOCAL, YARN_TARGETS
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import configuration_in_place


def open_shell(config: Settings) -> None:
    """Reads and runs statements until the input ends."""
    config = config.overlay({execution.ATTACHED.key: True})
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (line editing and history come with the import)
    with configuration_in_place(config.to_dict(redact=False)):
        names = shell_names()
        main = ModuleType("__main__")
        main.__dict__.update(names)
        sys.modules["__main__"] = main
        console = code.InteractiveConsole(main.__dict__)
        console.interact(banner=banner(config), exitmsg="")


def shell_names() -> dict[str, Any]:
    """The names that the prompt defines."""
    from yarrow.common import Row, Types
    from yarrow.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    return {"env": env, "Row": Row, "StreamExecutionEnvironment": StreamExecutionEnvironment, "Types": Types}


def banner(config: Settings) -> str:
    """Says where jobs will run."""
    target = config.get(execution.TARGET) or LOCAL
    if target in YARN_TARGETS:
        where = f"YARN ({execution.TARGET.key}: {target})"
    elif target == LOCAL:
        where = "an embedded cluster, one for each job"
    else:
        where = "the cluster at {}:{}".format(*rest_address(config))
    return (
        f"Yarrow shell: `env` is a StreamExecutionEnvironment on {where}.\n"
        "  env.from_collection([1, 2, 3]).map(lambda x: x + 1).print(); env.execute()\n"
        "Ctrl-C cancels a job, Ctrl-D ends the shell."
    )
