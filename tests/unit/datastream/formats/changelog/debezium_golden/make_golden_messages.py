"""Writes the golden messages of Debezium's own PostgreSQL connector.

`python -m tests.unit.datastream.formats.changelog.debezium_golden.make_golden_messages` needs Java 17, Maven and
PostgreSQL 15 (Debian's postgresql-15), and wrote the folders beside this file. Tests read these; nothing else runs it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.free_ports import free_port

HERE = Path(__file__).parent
POSTGRES = Path("/usr/lib/postgresql/15/bin")
#: Folder -> settings of the connector and its converter.
RUNS = {
    "described": ["converter.schemas.enable=true"],
    "described-connect-times": ["converter.schemas.enable=true", "time.precision.mode=connect"],
    "described-nanoseconds": ["converter.schemas.enable=true", "time.precision.mode=nanoseconds"],
    "keys-alone": ["converter.schemas.enable=false", "decimal.handling.mode=string"],
    "plain": ["converter.schemas.enable=false", "decimal.handling.mode=string"],
    "plain-iso-times": [
        "converter.schemas.enable=false",
        "decimal.handling.mode=string",
        "time.precision.mode=isostring",
    ],
}
#: Settings of all runs.
COMMON = [
    "name=golden",
    "connector.class=io.debezium.connector.postgresql.PostgresConnector",
    "offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "plugin.name=pgoutput",
    "database.hostname=127.0.0.1",
    "database.user=postgres",
    "database.dbname=postgres",
    "slot.drop.on.stop=true",
    "topic.prefix=golden",
    "table.include.list=shop.goods",
]


def statements(name: str) -> str:
    """The SQL of a run: with the replica identity DEFAULT the log has the keys of old rows alone."""
    text = (HERE / "goods-postgresql.sql").read_text()
    return text.replace("IDENTITY FULL", "IDENTITY DEFAULT") if name == "keys-alone" else text


def run(*command: str | Path, user: str | None = None) -> None:
    """Runs a program. Raises CalledProcessError when it fails."""
    subprocess.run([str(each) for each in command], check=True, cwd="/tmp", user=user, stdout=sys.stderr)


@contextmanager
def postgres(folder: Path) -> Iterator[int]:
    """A server whose log can be followed; its port."""
    # The server refuses to run as root.
    user = "postgres" if os.geteuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()
    run(POSTGRES / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", user=user)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c wal_level=logical"
    run(POSTGRES / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start", user=user)
    try:
        yield port
    finally:
        run(POSTGRES / "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop", user=user)


def main() -> None:
    """Write all folders anew."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        jars, server = Path(made, "jars"), Path(made, "server")
        os.chmod(made, 0o755)
        server.mkdir()
        copy = f"-DoutputDirectory={jars}"
        run("mvn", "-q", "-B", "-f", HERE / "pom.xml", "dependency:copy-dependencies", copy)
        with postgres(server) as port:
            for name, settings in RUNS.items():
                shutil.rmtree(HERE / name, ignore_errors=True)
                (HERE / name).mkdir()
                program: list[str | Path] = ["java", "-cp", f"{jars}/*", HERE / "DebeziumMessages.java"]
                address = f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=postgres"
                given = [*COMMON, f"database.port={port}", *settings]
                run(*program, address, statements(name), HERE / name, *given)


if __name__ == "__main__":
    main()
