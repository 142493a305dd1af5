"""What processes of a cluster load before they need it: each module is paid for in every worker of every slot.

The numbers below may only shrink. Who needs one more module in a process at its start takes another one out of it:
an import stands in the function that rarely runs, or the module is not needed there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

#: What unpacks, parses or serves is loaded where there is something to unpack, parse or serve.
_COSTLY = (
    "asyncio", "email", "http", "importlib.metadata", "numpy.random", "polars", "pandas", "grpc", "fastapi",
    "pyarrow", "statistics", "subprocess", "tarfile", "uvloop", "xml.etree", "zipfile",
)  # fmt: skip
_NEEDED_BY_SUPERVISOR = ("asyncio", "subprocess", "zipfile")


#: What a client with an embedded cluster does without: it reads no configuration file and has no plug-in to look for.
_NOT_FOR_CLIENTS = (
    "csv", "difflib", "email.message", "fastapi", "html", "importlib.metadata", "multiprocessing", "numpy",
    "pandas", "polars", "pyarrow", "tarfile", "uvloop", "xml.etree", "yaml",
)  # fmt: skip
#: Its worker fails the job if it has loaded pyarrow, which a job without columns does without.
_CLIENT = """
import sys
from yarrow.common import Configuration, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink, FileSource
from yarrow.datastream.connectors.number_seq import NumberSequenceSource

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({"parallelism.default": "1"}))
numbers = env.from_source(NumberSequenceSource(0, 9), WatermarkStrategy.no_watermarks(), "numbers")
sums = numbers.key_by(lambda x: x % 2, Types.LONG()).reduce(lambda a, b: a + b)
sums.filter(lambda x: "pyarrow" in sys.modules).map(lambda x: x / "the worker has loaded pyarrow").print()
env.execute("small")
"""


#: What each process does at its start, for the numbers below.
_SUPERVISOR = "import yarrow.container.process.child_task_executor"
_TEMPLATE = "from yarrow.container.launch.template import preload; preload('yarrow.container.worker.worker:run_worker')"
#: Most modules of Yarrow in a process that has started. Specs and messages of all jobs are among them, since each
#: process decodes what it gets. Late records, event time, handling of errors and rate limits add to them everywhere.
#: A template has what makes loops compute small functions, ten modules, since nearly every worker compiles such a loop.
#: So has it the tests of values that are given away, and four modules by which each worker looks at its stacks. Specs
#: are four modules, which were one, in each process.
_MODULES = {"client": 412, "supervisor": 179, "template": 384}
#: Most dataclasses among them. The decorator compiles up to eight functions, 0.5 ms a class. A class that is no part of
#: the API, and of no stored state, is a msgspec.Struct, which is made ten times as fast.
_DATACLASSES = {"client": 46, "supervisor": 10, "template": 24}
#: Modules that each kind of TaskExecutor has at its fork, and its template does without.
_FORKING = ("yarrow.container.launch.forked_template", "yarrow.container.process")
#: Most modules that TaskExecutor and template load each for itself after the fork.
_LOADED_TWICE = 7
_CODE = {"client": _CLIENT, "supervisor": _SUPERVISOR, "template": _TEMPLATE}
_COUNTED = """
import dataclasses
ours = [module for name, module in sys.modules.items() if name.startswith("yarrow.")]
classes = {kind for module in ours for kind in vars(module).values() if isinstance(kind, type)}
made = [kind for kind in classes if "__dataclass_fields__" in vars(kind) and kind.__module__.startswith("yarrow.")]
print(json.dumps([len(ours), len(made)]))
"""


@cache
def loaded_by(code: str) -> frozenset[str]:
    """The modules of a fresh interpreter that has run the code."""
    return frozenset(told_by(f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"))


def told_by(script: str) -> Any:
    """What a fresh interpreter prints last, as JSON."""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def test_a_template_has_loaded_nothing_that_most_workers_do_without() -> None:
    loaded = loaded_by(_TEMPLATE)
    assert "yarrow.container.task.stream_task" in loaded
    assert loaded.isdisjoint(_COSTLY), sorted(loaded & set(_COSTLY))


def test_a_supervisor_has_loaded_nothing_that_most_jobs_do_without() -> None:
    loaded = loaded_by(_SUPERVISOR)
    costly = set(_COSTLY) - set(_NEEDED_BY_SUPERVISOR)
    assert loaded.isdisjoint(costly), sorted(loaded & costly)


@pytest.mark.slow
def test_a_client_that_has_run_a_job_has_loaded_nothing_that_the_job_did_without() -> None:
    loaded = loaded_by(_CLIENT)
    assert "yarrow.embedded.local_cluster" in loaded
    assert loaded.isdisjoint(_NOT_FOR_CLIENTS), sorted(loaded & set(_NOT_FOR_CLIENTS))


@pytest.mark.slow
@pytest.mark.parametrize("process", ["client", "supervisor", "template"])
def test_a_started_process_has_made_no_more_than_before(process: str) -> None:
    modules, dataclasses = told_by(f"{_CODE[process]}\nimport json, sys\n{_COUNTED}")
    assert modules <= _MODULES[process], (
        "import it where it is needed, or take another module out of this process"
    )
    assert dataclasses <= _DATACLASSES[process], "make it a msgspec.Struct"


@pytest.mark.parametrize("module", ["task_executor_main", "yarn_task_executor"])
def test_a_task_executor_forks_its_template_when_it_has_what_both_need_and_nothing_else(
    module: str, tmp_path: Path
) -> None:
    script = f"""
import json, os, sys
from yarrow.container.process import {module} as executed
os.chdir({str(tmp_path)!r})
def note():
    print(json.dumps([sorted(sys.modules), len(os.listdir("/proc/self/task"))]))
    raise SystemExit(0)
os.fork = note
executed.main()
"""
    loaded, threads = told_by(script)
    assert threads == 1
    template, supervisor = loaded_by(_TEMPLATE), loaded_by(_SUPERVISOR)
    alone = {name for name in set(loaded) - template if name.startswith("yarrow.")}
    assert alone == {f"yarrow.container.process.{module}", *_FORKING}
    assert set(loaded).isdisjoint({"asyncio", "grpc", "numpy", "subprocess"})
    assert len((template & supervisor) - set(loaded)) <= _LOADED_TWICE, "add it to forked_template.SHARED"
    assert not list(tmp_path.iterdir()), "it removes its folder"
