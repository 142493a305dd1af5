"""Flags that several actions share, as the library for command lines declares them. Names and letters are Flink's.

Owner: none; declarations only. Nothing is read here, and nothing is imported but what a declaration needs.
"""

from __future__ import annotations

from typing import Annotated

import typer

Dynamic = Annotated[
    list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="Sets a configuration key.")
]
Address = Annotated[
    str | None,
    typer.Option(
        "-m", "--jobmanager", metavar="HOST:PORT", help="REST address of the cluster; yarn-cluster: YARN."
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "-t",
        "--target",
        help="Where it runs: local, remote, yarn-session, yarn-per-job, yarn-application (execution.target).",
    ),
]
OldTarget = Annotated[str | None, typer.Option("-e", "--executor", hidden=True)]
Parallelism = Annotated[
    int | None, typer.Option("-p", "--parallelism", min=1, help="Parallelism of operators that set none.")
]
EntryClass = Annotated[
    str | None,
    typer.Option("-c", "--class", metavar="MODULE", help="Module of an archive that is the program."),
]
PyFile = Annotated[str | None, typer.Option("-py", "--python", metavar="FILE", help="The program: a script.")]
PyModule = Annotated[
    str | None, typer.Option("-pym", "--pyModule", metavar="MODULE", help="The program: a module, see -pyfs.")
]
PyFiles = Annotated[
    str | None,
    typer.Option(
        "-pyfs", "--pyFiles", metavar="A,B", help="Modules, packages and zips shipped to the workers."
    ),
]
PyArchives = Annotated[
    str | None,
    typer.Option("-pyarch", "--pyArchives", metavar="A#DIR,...", help="Archives unpacked for the workers."),
]
PyRequirements = Annotated[
    str | None,
    typer.Option(
        "-pyreq", "--pyRequirements", metavar="FILE#CACHE", help="A requirements file for the workers."
    ),
]
PyExecutable = Annotated[
    str | None, typer.Option("-pyexec", "--pyExecutable", help="Interpreter of the workers.")
]
PyClientExecutable = Annotated[
    str | None,
    typer.Option("-pyclientexec", "--pyClientExecutable", help="Interpreter that runs the program."),
]
PyPath = Annotated[
    str | None, typer.Option("-pypath", "--pyPythonPath", help="Entries for the workers' path.")
]
Arguments = Annotated[list[str] | None, typer.Argument(help="The program and its arguments.")]

# YARN

ApplicationId = Annotated[
    str | None,
    typer.Option(
        "-yid", "--yarnapplicationId", metavar="APPLICATION", help="The application on YARN, by id or name."
    ),
]
YarnEnvironment = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="auto|none|ARCHIVE",
        help="Python of the containers on YARN: the active environment packed, the nodes' own, an archive on HDFS.",
    ),
]
YarnDetached = Annotated[bool, typer.Option("-yd", "--yarndetached", help="The same as -d.", hidden=True)]
YarnQuery = Annotated[
    bool, typer.Option("-yq", "--yarnquery", help="Show nodes, memory, cores and queues of YARN instead.")
]
YarnContainers = Annotated[
    int | None,
    typer.Option("-yn", "--yarncontainer", min=1, help="TaskExecutors taken first and kept."),
]
YarnMasterMemory = Annotated[
    str | None,
    typer.Option(
        "-yjm", "--yarnjobManagerMemory", metavar="SIZE", help="Memory of the master; MB without unit."
    ),
]
YarnTaskMemory = Annotated[
    str | None,
    typer.Option(
        "-ytm", "--yarntaskManagerMemory", metavar="SIZE", help="Memory of a TaskExecutor; MB without unit."
    ),
]
YarnSlots = Annotated[int | None, typer.Option("-ys", "--yarnslots", min=1, help="Slots of a TaskExecutor.")]
YarnQueue = Annotated[str | None, typer.Option("-yqu", "--yarnqueue", help="Queue of the application.")]
YarnName = Annotated[str | None, typer.Option("-ynm", "--yarnname", help="Name of the application.")]
YarnType = Annotated[
    str | None, typer.Option("-yat", "--yarnapplicationType", help="Tag of the application.")
]
YarnShip = Annotated[
    list[str] | None,
    typer.Option("-yt", "--yarnship", metavar="PATH", help="Files and folders put into every container."),
]
YarnNodeLabel = Annotated[
    str | None, typer.Option("-ynl", "--yarnnodeLabel", help="Node label of the application.")
]
YarnNamespace = Annotated[
    str | None, typer.Option("-yz", "--yarnzookeeperNamespace", help="The same as -z.", hidden=True)
]
YarnDynamic = Annotated[
    list[str] | None, typer.Option("-yD", metavar="KEY=VALUE", help="The same as -D.", hidden=True)
]
YarnStreaming = Annotated[bool, typer.Option("-yst", "--yarnstreaming", hidden=True)]
YarnJar = Annotated[str | None, typer.Option("-yj", "--yarnjar", hidden=True)]
