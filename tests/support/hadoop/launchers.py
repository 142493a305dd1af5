"""The commands `yarn` and `hdfs` of a cluster: small shell scripts that run Hadoop's Java mains.

Owner: the caller's thread. They answer what clients of the published distribution rely on: the class path,
and the commands for applications, nodes, logs and files.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from tests.support.services import class_archive

#: Flags that make a short-lived or small Java program start fast and stay lean.
LEAN = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
#: What Hadoop's code needs from Java's modules.
MODULES = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-exports=java.base/sun.net.dns=ALL-UNNAMED")

_HEAD = """\
#!/bin/sh
# Runs Hadoop's own command line from the jars of this cluster.
set -eu
JAVA_HOME="${{JAVA_HOME:-{java_home}}}"
HADOOP_CONF_DIR="${{HADOOP_CONF_DIR:-{conf}}}"
export JAVA_HOME HADOOP_CONF_DIR
jars={jars}

run() {{
    exec "$JAVA_HOME/bin/java" -Xmx256m {flags} ${{HADOOP_OPTS:-}} ${{HADOOP_CLIENT_OPTS:-}} \\
        -cp "$jars/*:$HADOOP_CONF_DIR" "$@"
}}

classpath() {{
    case "${{1:-}}" in
        --glob)
            list="$HADOOP_CONF_DIR"
            for jar in "$jars"/*.jar; do list="$list:$jar"; done
            echo "$list" ;;
        "") echo "$HADOOP_CONF_DIR:$jars/*" ;;
        *) echo "$(basename "$0"): classpath takes --glob only" >&2; exit 1 ;;
    esac
}}

command="${{1:-}}"
[ $# -eq 0 ] || shift
case "$command" in
    classpath) classpath "$@" ;;
    version) run org.apache.hadoop.util.VersionInfo "$@" ;;
"""

_MAINS = {
    "yarn": {
        "app|application": "org.apache.hadoop.yarn.client.cli.ApplicationCLI application",
        "applicationattempt": "org.apache.hadoop.yarn.client.cli.ApplicationCLI applicationattempt",
        "container": "org.apache.hadoop.yarn.client.cli.ApplicationCLI container",
        "logs": "org.apache.hadoop.yarn.client.cli.LogsCLI",
        "node": "org.apache.hadoop.yarn.client.cli.NodeCLI",
        "queue": "org.apache.hadoop.yarn.client.cli.QueueCLI",
        "rmadmin": "org.apache.hadoop.yarn.client.cli.RMAdminCLI",
    },
    "hdfs": {
        "dfs": "org.apache.hadoop.fs.FsShell",
        "fetchdt": "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher",
        "dfsadmin": "org.apache.hadoop.hdfs.tools.DFSAdmin",
        "fsck": "org.apache.hadoop.hdfs.tools.DFSck",
        "getconf": "org.apache.hadoop.hdfs.tools.GetConf",
    },
}


def script(name: str, java_home: Path, conf: Path, jars: Path) -> str:
    """The text of one launcher."""
    flags = (*LEAN, *MODULES, *class_archive.use_flags(str(java_home), jars))
    head = _HEAD.format(java_home=java_home, conf=conf, jars=shlex.quote(str(jars)), flags=" ".join(flags))
    cases = "".join(f'    {words}) run {main} "$@" ;;\n' for words, main in _MAINS[name].items())
    known = " ".join(["classpath", "version", *_MAINS[name]]).replace("app|", "")
    return (
        f"{head}{cases}"
        f"    *) echo \"{name}: unknown command '$command'; this launcher knows: {known}\" >&2; exit 1 ;;\n"
        "esac\n"
    )


def write(folder: Path, java_home: Path, conf: Path, jars: Path) -> None:
    """Writes all launchers into a folder, executable."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _MAINS:
        path = folder / name
        path.write_text(script(name, java_home, conf, jars), encoding="utf-8")
        path.chmod(0o755)
