"""A delegation token of HDFS by a Kerberos login: Hadoop's own `fetchdt` in a JVM, so that no native package is needed.

Owner: any thread; blocks for seconds, while the JVM runs. The token's file lies in a folder of mode 0700 and is gone
when the call returns. It needs what Skein's driver needs: Java, and `yarn`, `hdfs` or `hadoop` on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, HadoopToken, TokenFileError, read_tokens
from yarrow.runtime.fs.retries import TransientError

_MAIN: Final = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
_JAVA_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx256m",
    "-Djava.net.preferIPv4Stack=true",
)
_PROGRAMS: Final = ("yarn", "hdfs", "hadoop")
_SECONDS: Final = 120.0


class HadoopLoginError(FileSystemError):
    """Kerberos did not let this process in; the message names the setting that decides."""


class HadoopLogin(msgspec.Struct, frozen=True):
    """The login of a process: by a keytab if one is named, else by the user's ticket cache."""

    keytab: str = ""
    principal: str = ""
    may_use_ticket_cache: bool = True

    def __str__(self) -> str:
        if not self.keytab:
            return "the ticket cache"
        keytab, principal = security.KERBEROS_KEYTAB.key, security.KERBEROS_PRINCIPAL.key
        return f"{principal} {self.principal} with {keytab} {self.keytab}"

    @classmethod
    def of(cls, config: Settings) -> HadoopLogin:
        """The login that security.kerberos.login.* describe."""
        return cls(
            config.get(security.KERBEROS_KEYTAB) or "",
            config.get(security.KERBEROS_PRINCIPAL) or "",
            config.get(security.KERBEROS_USE_TICKET_CACHE),
        )

    def check(self) -> None:
        """Raises HadoopLoginError for settings that cannot be meant."""
        keytab, principal = security.KERBEROS_KEYTAB.key, security.KERBEROS_PRINCIPAL.key
        if bool(self.keytab) != bool(self.principal):
            raise HadoopLoginError(f"{keytab} and {principal} are set together or not at all.")
        if self.keytab and not os.access(self.keytab, os.R_OK):
            raise HadoopLoginError(f"{keytab} is {self.keytab}, which does not exist or cannot be read.")
        if not self.keytab and not self.may_use_ticket_cache:
            raise HadoopLoginError(
                f"{security.KERBEROS_USE_TICKET_CACHE.key} is false, and HDFS asks for Kerberos: set {keytab} and"
                f" {principal}, or allow the ticket cache."
            )

    def variables(self) -> Mapping[str, str]:
        """Environment variables by which Hadoop's programs log in."""
        if not self.keytab:
            return {}
        return {"KRB5KEYTAB": os.path.abspath(self.keytab), "KRB5PRINCIPAL": self.principal}


def fetch_token(
    file_system: str, login: HadoopLogin, configuration: Path | None, class_path: str = ""
) -> HadoopToken:
    """A token for the HDFS of the URL `hdfs://...`, good until its renewal would be due. Raises HadoopLoginError.

    `class_path`: that of a Java program of Hadoop; empty = a program of Hadoop on PATH is asked.
    """
    login.check()
    environment = {**os.environ, **login.variables()}
    if configuration is not None:
        environment["HADOOP_CONF_DIR"] = environment["YARN_CONF_DIR"] = str(configuration)
    # Hadoop would take the token in place of a login.
    environment.pop("HADOOP_TOKEN_FILE_LOCATION", None)
    with tempfile.TemporaryDirectory(prefix="yarrow-hadoop-login-") as folder:
        file = Path(folder) / "token"
        command = [
            _java(environment),
            *_JAVA_OPTIONS,
            "-cp",
            class_path or _class_path(environment),
            _MAIN,
            "-fs",
            file_system,
            str(file),
        ]
        said = _run(command, environment, "Hadoop's login")
        try:
            tokens = read_tokens(file)
        except FileNotFoundError:
            raise explained(said, file_system, login) from None
        except TokenFileError as error:
            raise HadoopLoginError(str(error)) from None
    for token in tokens:
        if token.kind == HDFS_KIND:
            return token
    raise HadoopLoginError(
        f"The NameNode of {file_system} gave no delegation token: check that hadoop.security.authentication of its"
        " configuration is kerberos."
    )


def explained(said: str, file_system: str, login: HadoopLogin) -> FileSystemError:
    """The error that Hadoop's text means, as one sentence; a TransientError where somebody may come back."""
    reason = known_reason(said)
    passes = reason is None and _PASSING.search(said) is not None
    text = (
        f"{file_system} asks for Kerberos, and the login by {login} failed:"
        f" {reason or _telling_line(said) or 'no reason given'}"
    )
    return TransientError(text) if passes else HadoopLoginError(text)


def known_reason(said: str) -> str | None:
    """The reason of a failed login, with advice; None if Hadoop's text is about something else."""
    for pattern, sentence in _KNOWN:
        if re.search(pattern, said):
            return sentence.format(
                keytab=security.KERBEROS_KEYTAB.key, principal=security.KERBEROS_PRINCIPAL.key
            )
    return None


#: The NameNode, or the KDC, is down or on its way up.
_PASSING: Final = re.compile(
    r"ConnectException|Connection refused|SocketTimeoutException|StandbyException|RetriableException|EOFException"
)
_NO_TICKET: Final = (
    "there is no valid ticket (or it has expired): run `kinit`, or set {keytab} and {principal}."
)
_KNOWN: Final = (
    (
        r"Unable to obtain password from user",
        "the keytab holds no key of that principal: `klist -kt` shows those that it has; {principal} must be one.",
    ),
    (
        r"Client not found in Kerberos database|\(6\)",
        "the KDC does not know that principal: check {principal}.",
    ),
    (
        r"Checksum failed|[Pp]re-?authentication|\(24\)|Integrity check on decrypted field failed",
        "the KDC refuses the key: the keytab of {keytab} is older than the principal's key, or another's.",
    ),
    (r"[Cc]lock skew", "the clocks of this machine and of the KDC differ by more than Kerberos allows."),
    (r"[Tt]icket expired|TKT_EXPIRED", _NO_TICKET),
    (
        r"Client cannot authenticate via|Failed to find any Kerberos (?:tgt|ticket)|No valid credentials",
        _NO_TICKET,
    ),
    (
        r"Cannot locate (?:default realm|KDC)|Can't get Kerberos realm",
        "Java knows no KDC: name the realm and its KDC in /etc/krb5.conf.",
    ),
)


def _telling_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if "Exception" in line and not line.startswith("at ")]
    return (telling or [line for line in lines if line] or [""])[-1][:500]


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME", "")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if not found or not os.access(found, os.X_OK):
        raise HadoopLoginError(
            f"HDFS asks for Kerberos, and there is no Java to log in with ({found or 'no `java` on PATH'}): install a"
            " Java runtime and set JAVA_HOME to its folder."
        )
    return found


def _class_path(environment: Mapping[str, str]) -> str:
    named = (shutil.which(name, path=environment.get("PATH")) for name in _PROGRAMS)
    program = next((path for path in named if path), None)
    if program is None:
        raise HadoopLoginError(
            "HDFS asks for Kerberos, and the login finds no program `yarn`, `hdfs` or `hadoop` on PATH. Add"
            " the bin folder of the Hadoop client to PATH."
        )
    # On standard output alone: a JVM may say on the other that it picked up options.
    return _run([program, "classpath", "--glob"], environment, program, both=False).strip()


def _run(command: list[str], environment: Mapping[str, str], what: str, both: bool = True) -> str:
    import subprocess  # workers know of logins and make none

    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if both else subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HadoopLoginError(
            f"{what} did not answer within {_SECONDS:g} s: check that the KDC and the NameNode answer."
        ) from None
    except OSError as error:
        raise HadoopLoginError(f"{what} cannot be started: {error}") from None
    return done.stdout.decode(errors="replace")
