"""What processes of a cluster load before they need it: each module is paid for in every worker of every slot."""

from __future__ import annotations

import json
import subprocess
import sys

#: What unpacks, parses or serves is loaded where there is something to unpack, parse or serve.
_COSTLY = (
    "asyncio", "email", "http", "importlib.metadata", "numpy.random", "polars", "pandas", "grpc", "fastapi",
    "statistics", "subprocess", "tarfile", "xml.etree", "zipfile",
)  # fmt: skip
_NEEDED_BY_SUPERVISOR = ("asyncio", "subprocess", "zipfile")


#: What a client with an embedded cluster does without: it reads no configuration file and has no plug-in to look for.
_NOT_FOR_CLIENTS = (
    "csv", "difflib", "email.message", "fastapi", "html", "importlib.metadata", "multiprocessing", "numpy",
    "pandas", "polars", "pyarrow", "tarfile", "xml.etree", "yaml",
)  # fmt: skip
_CLIENT = """
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"parallelism.default": "1"}))
numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
numbers.key_by(lambda x: x % 2, Types.LONG()).reduce(lambda a, b: a + b).filter(lambda x: False).print()
env.execute("small")
"""


def loaded_by(code: str) -> set[str]:
    """The modules of a fresh interpreter that has run the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(found.stdout.splitlines()[-1]))


def test_a_template_has_loaded_nothing_that_most_workers_do_without() -> None:
    loaded = loaded_by(
        "from yarrow.container.launch.template import preload; preload('yarrow.container.worker.worker:run_worker')"
    )
    assert "yarrow.container.task.stream_task" in loaded
    assert loaded.isdisjoint(_COSTLY), sorted(loaded & set(_COSTLY))


def test_a_supervisor_has_loaded_nothing_that_most_jobs_do_without() -> None:
    loaded = loaded_by("import yarrow.container.supervisor.task_executor")
    costly = set(_COSTLY) - set(_NEEDED_BY_SUPERVISOR)
    assert loaded.isdisjoint(costly), sorted(loaded & costly)


def test_a_client_that_has_run_a_job_has_loaded_nothing_that_the_job_did_without() -> None:
    loaded = loaded_by(_CLIENT)
    assert "yarrow.embedded.local_cluster" in loaded
    assert loaded.isdisjoint(_NOT_FOR_CLIENTS), sorted(loaded & set(_NOT_FOR_CLIENTS))
