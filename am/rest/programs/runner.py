"""The process of an uploaded program's main: `python -m yarrow.am.rest.programs.runner <fd>`.

Owner: its main thread. It submits nothing: JobGraphs go back over the pipe whose number is the argument. The
request comes on standard input, which then stays open while the control plane wants the process to live. When
it closes, the process ends at once.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from yarrow.am.rest.programs.control_pipe import take_request
from yarrow.am.rest.programs.messages import (
    JobHandedOver,
    MessageFromProgram,
    ProgramEnded,
    ProgramFileToShip,
    ProgramRequest,
    decode_request,
    encode_frame,
)
from yarrow.runtime.graph.executor import (
    LocalFile,
    ProgramAborted,
    collect_job_graphs,
    configuration_in_place,
    plan_only,
)
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.graph.shipped_files import archive_of


def main() -> int:
    """Runs the requested program."""
    results = int(sys.argv[1])
    os.set_inheritable(results, False)
    request = decode_request(take_request())
    write = _Writer(results)
    try:
        with configuration_in_place(request.configuration):
            _run(request, write)
        write(ProgramEnded())
    except BaseException as error:  # any exception that ends the program is its result
        write(ProgramEnded(error=describe_failure(error)))
    return 0


class _Writer:
    def __init__(self, descriptor: int) -> None:
        self._file = os.fdopen(descriptor, "wb")

    def __call__(self, message: MessageFromProgram) -> None:
        self._file.write(encode_frame(message))
        self._file.flush()


def _run(request: ProgramRequest, write: _Writer) -> None:
    # The program may change its directory; files for the control plane belong where it began.
    working = Path.cwd()

    def deliver(graph: JobGraph, files: Sequence[LocalFile]) -> None:
        shipped = (*files, *_own_modules(request, working))
        write(JobHandedOver(job_graph=encode_job_graph(graph), files=_readable(shipped, working)))

    try:
        if request.plan_only:
            with plan_only():
                _call_main(request)
        else:
            with collect_job_graphs(deliver):
                _call_main(request)
    except ProgramAborted as planned:
        deliver(planned.job_graph, planned.files)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise


def _call_main(request: ProgramRequest) -> None:
    # Under its own name in the working directory, for tracebacks and imports.
    program = Path.cwd() / request.name
    program.symlink_to(request.path)
    sys.argv = [request.name, *request.arguments]
    archive = program.suffix == ".zip"
    sys.path.insert(0, str(program) if archive else str(program.parent))
    module, _, function = request.entry.partition(":")
    if function:
        getattr(importlib.import_module(module), function)()
    elif module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(program), run_name="__main__")


def _own_modules(request: ProgramRequest, working: Path) -> tuple[LocalFile, ...]:
    """The program itself, if its functions come from modules that workers must import."""
    if not (request.name.endswith(".zip") or ":" in request.entry):
        return ()
    return (LocalFile(name=request.name, kind="python_file", path=str(working / request.name)),)


def _readable(files: Sequence[LocalFile], working: Path) -> tuple[ProgramFileToShip, ...]:
    return tuple(
        ProgramFileToShip(
            name=file.name,
            kind=file.kind,
            path=_as_file(file, working / f"shipped-{number}.zip"),
            target=file.target,
            is_folder=os.path.isdir(file.path),
            executable=file.executable,
        )
        for number, file in enumerate(files)
    )


def _as_file(file: LocalFile, archive: Path) -> str:
    """The path of the file to send: the file itself, or the zip made of it."""
    content = archive_of(file)
    if content is None:
        return os.path.abspath(file.path)
    archive.write_bytes(content)
    return str(archive)


def describe_failure(error: BaseException) -> str:
    """The trace with the program's own frames only; without any, a SyntaxError still names its line."""
    own = error.__traceback__
    while own is not None and _is_ours(own):
        own = own.tb_next
    return "".join(traceback.format_exception(type(error), error, own)).rstrip()


def _is_ours(trace: TracebackType) -> bool:
    name = trace.tb_frame.f_code.co_filename
    return name == __file__ or name.startswith("<frozen") or os.path.basename(name) == "runpy.py"


if __name__ == "__main__":
    sys.exit(main())
