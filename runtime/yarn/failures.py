"""What YARN, HDFS and Skein say when they refuse, as sentences that name the setting that decides.

Owner: any thread; pure texts, no I/O. It knows words of Hadoop's messages; an unknown one is passed on, its first line
first, without the Java stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from yarrow.runtime.yarn.gateways import YarnError

_EXCEPTION: Final = re.compile(r"^\s*(?:[a-z][\w$]*\.)+(\w+(?:Exception|Error)):\s*")
_STACK_LINE: Final = re.compile(r"^\s*(at [\w.$/@]+\(|\.\.\. \d+ more|Caused by: )")
#: Frames, and the heads that stand above them.
_PYTHON_STACK: Final = re.compile(
    r"\s+File \"|\s{4}|\s*(Traceback \(most recent|During handling of|The above exception was)"
)
_SUMMARY_LINES: Final = 4
_SUMMARY_LENGTH: Final = 600


class UnknownQueueError(YarnError):
    """There is no such queue, or it takes no applications."""


def explain(action: str, text: str) -> YarnError:
    """The error for `action` ("submit the application ...") that failed with YARN's `text`."""
    for pattern, sentence in _KNOWN:
        found = pattern.search(text)
        if found is not None:
            kind = UnknownQueueError if sentence is _queue else YarnError
            return kind(f"Cannot {action}: {sentence(found)}")
    return YarnError(f"Cannot {action}: {first_lines(text) or 'no reason was given'}")


def first_lines(text: str, limit: int = 3) -> str:
    """The telling lines of a Java error: stack and names of packages left out, at most `limit` lines."""
    kept = []
    for line in text.splitlines():
        if not line.strip() or _STACK_LINE.match(line):
            continue
        shortened = _EXCEPTION.sub("", line.strip())
        if shortened and shortened not in kept:
            kept.append(shortened)
    return " ".join(kept[:limit])


def summary(diagnostics: str) -> str:
    """YARN's diagnostics of an application, in a sentence's length and on one line; "" for none.

    They may be pages: Java's stack and that of a user's program stay out, of which the last line says what happened.
    """
    text = first_lines("\n".join(without_stack(diagnostics)), limit=_SUMMARY_LINES)
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[:_SUMMARY_LENGTH]} ..."


def without_stack(text: str) -> list[str]:
    """The lines that are not empty and not of a Python stack."""
    return [line for line in text.splitlines() if line.strip() and not _PYTHON_STACK.match(line)]


def _queue(found: re.Match[str]) -> str:
    return (
        f"YARN has no queue {found['queue']!r} that takes applications:"
        " yarn.application.queue must name a leaf queue in the RUNNING state."
    )


def _memory(found: re.Match[str]) -> str:
    return (
        f"{first_lines(found.group(0))}. A container may have at most what yarn.scheduler.maximum-allocation-mb and"
        " yarn.scheduler.maximum-allocation-vcores of the ResourceManager say: lower jobmanager.memory.process.size,"
        " taskmanager.memory.process.size, yarn.appmaster.vcores or yarn.containers.vcores."
    )


def _permission(found: re.Match[str]) -> str:
    return (
        f"HDFS refuses: {first_lines(found.group(0), 1)}. The user needs a home directory there that he may write"
        " (applications' files go below it), and yarn.staging-directory must be writable too."
    )


def _space(found: re.Match[str]) -> str:
    return (
        f"HDFS has no room for the application's files: {first_lines(found.group(0), 1)}."
        " Free space or raise the quota of the user's home directory and of yarn.staging-directory."
    )


def _safe_mode(found: re.Match[str]) -> str:
    return (
        "HDFS is in safe mode and takes no files:"
        " wait until its NameNode has left it (`hdfs dfsadmin -safemode get`)."
    )


def _refused(found: re.Match[str]) -> str:
    return (
        f"nobody answers at {found['address']}: check that the service runs and that the address in the Hadoop"
        " configuration (HADOOP_CONF_DIR: yarn.resourcemanager.address, fs.defaultFS) is right."
    )


def _kerberos(found: re.Match[str]) -> str:
    return (
        "the cluster wants Kerberos and there is no valid ticket: run `kinit`, or set"
        " security.kerberos.login.keytab and security.kerberos.login.principal."
    )


def _label(found: re.Match[str]) -> str:
    return (
        f"{first_lines(found.group(0), 1)}. yarn.application.node-label and yarn.taskmanager.node-label must name"
        " labels that the queue may use."
    )


def _admission(found: re.Match[str]) -> str:
    return (
        f"{first_lines(found.group(0), 1)}. The user may not submit to the queue of yarn.application.queue:"
        " ask for the right to, or name another queue."
    )


def _master_gone(found: re.Match[str]) -> str:
    return "Skein's ApplicationMaster does not answer (any more): it has ended, or is just ending."


def _driver_silent(found: re.Match[str]) -> str:
    return (
        "Skein's driver, the Java process of this command, runs and does not answer: the machine is overloaded, or the"
        " process hangs. Look at load and free memory, see by `yarn application -list` whether what was asked for has"
        " happened all the same, and run the command again."
    )


_Sentence = Callable[[re.Match[str]], str]
_KNOWN: Final[Sequence[tuple[re.Pattern[str], _Sentence]]] = tuple(
    (re.compile(pattern, re.DOTALL), sentence)
    for pattern, sentence in (
        (r"submitted by user \S+ to (?:unknown|non-leaf) queue:? ?(?P<queue>[\w.\-]+)", _queue),
        (r"[Qq]ueue (?:named )?'?(?P<queue>[\w.\-]+)'? (?:does not exist|doesn't exist|is STOPPED)", _queue),
        (r"Invalid (?:label )?resource request[^\n]*label[^\n]*", _label),
        (r"Invalid resource request[^\n]*", _memory),
        (r"(?:DSQuota|NSQuota|QuotaExceeded|The (?:DiskSpace|NameSpace) quota)[^\n]*", _space),
        (r"could only be (?:written|replicated) to[^\n]*", _space),
        (r"SafeModeException|[Nn]ame node is in safe mode", _safe_mode),
        (r"User \S+ (?:does not have permission|cannot submit)[^\n]*", _admission),
        (r"Permission denied[^\n]*", _permission),
        (r"Kerberos ticket not found|GSS initiate failed|Client cannot authenticate via", _kerberos),
        (r"to (?P<address>[\w.\-]+(?:/[\d.]+)?:\d+) failed on connection exception", _refused),
        (r"Unable to connect to driver", _driver_silent),
        (r"Unable to connect to application", _master_gone),
    )
)
