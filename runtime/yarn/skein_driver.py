"""Skein's driver: a JVM that speaks to YARN and HDFS for one client process, and ends with it.

Owner: the client that made it; `begin` starts it in a thread so that the start overlaps with other work, `address`
waits for it. The JVM ends when its standard input closes, so also when this process is killed. It must not be shared
between processes: its certificate pair is made here and lives in memory and in the JVM's environment alone.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import IO, Final

from yarrow.runtime.fs.client_folder import ClientFolder
from yarrow.runtime.fs.hadoop_login import HadoopLogin, known_reason
from yarrow.runtime.yarn.failures import first_lines
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_overlay import OVERLAY_JAR, write_overlay
from yarrow.runtime.yarn.layout import DRIVER_FOLDER

#: For a JVM whose start is most of its work: shared classes of the JDK, no second compiler, one collector thread, no
#: verification of classes that come from Hadoop's own jars. Options that a JVM does not know are left out by it.
FAST_START: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
#: A JVM starts in seconds, on a machine that is busy with other things in some ten; one that takes longer hangs.
_START_SECONDS: Final = 120.0
_CLASS_PATH_SECONDS: Final = 60.0
_MAIN: Final = "com.anaconda.skein.Driver"
_LOG_FILE: Final = "driver.log"
_LOG_TAIL: Final = 4000


class SkeinDriver:
    """A driver process.

    `credentials` is the certificate pair, as PEM, of the connection to it. `environment` is that of the process to be
    started (PATH, JAVA_HOME, HADOOP_CONF_DIR, ...), `properties` go before those of its Hadoop configuration.
    """

    def __init__(
        self,
        credentials: tuple[bytes, bytes],
        environment: Mapping[str, str],
        properties: Mapping[str, str],
        keytab: tuple[str, str] | None = None,
    ) -> None:
        self.credentials = credentials
        self._environment = dict(environment)
        self._properties = dict(properties)
        self._folder: ClientFolder | None = None
        #: Path of the keytab, and principal.
        self._keytab = keytab
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._address = ""
        self._failure: YarnError | None = None
        self._closed = False

    def begin(self) -> None:
        """Starts the process in the background; no effect when it was begun."""
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._start, name="skein-driver-start", daemon=True)
                self._thread.start()

    def address(self) -> str:
        """`host:port` of the driver, waited for. Raises YarnError when it does not start."""
        self.begin()
        thread = self._thread
        if thread is None:
            raise YarnError("Skein's driver of this client has been closed.")
        thread.join()
        if self._failure is not None:
            raise self._failure
        return self._address

    def problem(self) -> str:
        """Why a driver that has started does not answer any more, as a sentence; "" while its process runs."""
        process = self._process
        if process is None or (status := process.poll()) is None:
            return ""
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        return (
            f"Skein's driver, the Java process of this command, {how}: {self._log_tail() or 'it said nothing'}"
            ". A machine that is short of memory kills processes: look at its log, free memory, and run the"
            " command again."
        )

    def close(self) -> None:
        """Ends the process and waits for its end."""
        with self._lock:
            self._closed = True
            thread, process = self._thread, self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()
            if not self._address:
                # The JVM would first finish its start.
                process.kill()
            process.wait()
        if thread is not None:
            thread.join()
        with self._lock:
            self._thread = None
            if self._log is not None:
                self._log.close()
                self._log = None
            if self._folder is not None:
                self._folder.remove()
                self._folder = None

    def _start(self) -> None:
        try:
            self._address = self._started()
        except YarnError as error:
            self._failure = error
        except Exception as error:
            # The error is raised where the address is asked for: this is the start's own thread.
            self._failure = YarnError(f"Skein's driver cannot be started: {error}.")

    def _started(self) -> str:
        # Check first for missing programs: nothing has been made then that would stay behind.
        command, class_path = self._command(), self._class_path()
        environment = dict(self._environment)
        certificate, key = self.credentials
        environment["SKEIN_CERTIFICATE"], environment["SKEIN_KEY"] = certificate.decode(), key.decode()
        folder = ClientFolder(prefix=DRIVER_FOLDER)
        overlay = Path(folder.path) / OVERLAY_JAR
        write_overlay(overlay, self._properties)
        environment["CLASSPATH"] = f"{_skein_jar()}:{overlay}:{class_path}"
        log = open(Path(folder.path) / _LOG_FILE, "w+b")  # noqa: SIM115 - closed with the driver
        with socket.create_server(("127.0.0.1", 0), backlog=1) as callback:
            environment["SKEIN_CALLBACK_PORT"] = str(callback.getsockname()[1])
            with self._lock:
                if self._closed:
                    log.close()
                    folder.remove()
                    raise YarnError("Skein's driver was closed before it had started.")
                self._log, self._folder = log, folder
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    # An interrupt at the terminal is for the client, which then still needs the driver to clean up.
                    start_new_session=True,
                )
            port = self._port_of(callback, self._process)
        return f"127.0.0.1:{port}"

    def _port_of(self, callback: socket.socket, process: subprocess.Popen[bytes]) -> int:
        """The port that the driver reports when it serves."""
        callback.settimeout(0.2)
        waited = 0.0
        while process.poll() is None and waited < _START_SECONDS:
            try:
                connection = callback.accept()[0]
            except TimeoutError:
                waited += 0.2
                continue
            with connection, connection.makefile("rb") as stream:
                connection.settimeout(_START_SECONDS)
                data = stream.read(4)
            if len(data) == 4:
                return int(struct.unpack("!i", data)[0])
            break
        if process.stdin is not None:
            process.stdin.close()
        process.kill()
        process.wait()
        if waited >= _START_SECONDS:
            raise YarnError(
                f"Skein's driver, a Java process ({self._java()}), has not started within {_START_SECONDS:g}"
                " s. A start takes seconds on a machine that is not overloaded: look at its load and free"
                f" memory, and run the command again. The driver said: {self._log_tail() or 'nothing'}"
            )
        if self._keytab is not None and (reason := known_reason(self._log_tail(whole=True))):
            raise YarnError(f"The login by {HadoopLogin(*self._keytab)} failed: {reason}")
        raise YarnError(
            f"Skein's driver did not start with the Java {self._java()} (JAVA_HOME):"
            f" {self._log_tail() or 'it said nothing'}"
        )

    def _log_tail(self, whole: bool = False) -> str:
        if self._log is None:
            return ""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _LOG_TAIL))
        text = self._log.read().decode(errors="replace")
        return text if whole else first_lines(text, limit=8)

    def _command(self) -> list[str]:
        options = self._environment.get("SKEIN_DRIVER_JAVA_OPTIONS", "").split()
        native = Path(self._environment.get("HADOOP_HOME", "/nonexistent")) / "lib" / "native"
        if native.is_dir():
            options.append(f"-Djava.library.path={native}")
        command = [
            self._java(),
            "-Dskein.log.level=WARN",
            *FAST_START,
            *options,
            _MAIN,
            "--jar",
            str(_skein_jar()),
        ]
        if self._keytab is not None:
            command += ["--keytab", self._keytab[0], "--principal", self._keytab[1]]
        return command

    def _java(self) -> str:
        home = self._environment.get("JAVA_HOME", "")
        if home:
            java = Path(home) / "bin" / "java"
            if not java.is_file():
                raise YarnError(
                    f"JAVA_HOME is {home}, but there is no {java}: name the folder of a Java 8 or newer."
                )
            return str(java)
        found = shutil.which("java", path=self._environment.get("PATH"))
        if found is None:
            raise YarnError(
                "There is no Java, through which YARN is reached. Install a Java runtime and set JAVA_HOME to"
                " its folder."
            )
        return found

    def _class_path(self) -> str:
        program = shutil.which("yarn", path=self._environment.get("PATH"))
        if program is None:
            raise YarnError(
                "There is no program `yarn` on PATH: Hadoop's client libraries are found by `yarn classpath`."
                " Add the bin folder of the Hadoop client to PATH."
            )
        try:
            found = subprocess.run(
                [program, "classpath", "--glob"],
                env=self._environment,
                capture_output=True,
                timeout=_CLASS_PATH_SECONDS,
                check=True,
            )
        except subprocess.TimeoutExpired:
            raise YarnError(
                f"`{program} classpath --glob` did not answer within {_CLASS_PATH_SECONDS:g} s. The command"
                " takes a second on a machine that is not overloaded: look at its load, and run the command"
                " again."
            ) from None
        except subprocess.CalledProcessError as error:
            said = first_lines(error.stderr.decode(errors="replace"))
            raise YarnError(
                f"`{program} classpath --glob` ended with status {error.returncode}: {said}"
            ) from None
        return found.stdout.decode().strip()


def _skein_jar() -> Path:
    """The jar in Skein's package, found without importing it (its import takes longer than the rest of this module)."""
    specification = util.find_spec("skein")
    if specification is None or specification.origin is None:
        raise YarnError(
            "The Python package `skein` is missing, through which YARN is reached. Install it: `pip install"
            " skein`."
        )
    return Path(specification.origin).parent / "java" / "skein.jar"
