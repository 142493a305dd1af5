"""The letters that the command is given: files of lines that `DeadLetter.to_json` has written.

Owner: the main thread. The job reads the same files that were checked here, and none that comes later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from yarrow.client.errors import CommandError
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.line_blocks import open_lines
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import with_default_scheme
from yarrow.runtime.config.options import cluster
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_search import find_files
from yarrow.runtime.fs.file_system import FileStatus
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, offer_hdfs_settings


class PlacedLetter(NamedTuple):
    """A letter, and where it lies."""

    place: str
    letter: DeadLetter


class LetterInput(Protocol):
    """Letters that can be read here as often as wanted, and in the job once."""

    def letters(self) -> Iterator[PlacedLetter]:
        """Yield the letters. Raises CommandError naming a line that is no letter."""
        ...

    def source(self) -> Source[Any, Any]:
        """Return the source by which the job reads the same lines."""
        ...

    def size_bytes(self) -> int:
        """Return the bytes of the lines, about: a small bounded program runs without Spark."""
        ...


def files_at(path: str, config: Settings) -> list[FileStatus]:
    """Return the files of a path, a folder with all below it, or a pattern. Raises CommandError if there are none."""
    offer_hdfs_settings(HdfsSettings.of(config, is_client=True))
    default = config.get(cluster.DEFAULT_SCHEME)
    path = path if default is None else with_default_scheme(path, default)
    try:
        found = find_files(path)
    except FileNotFoundError:
        raise CommandError(f"There are no dead letters at {path}: no such file or folder.") from None
    except (OSError, FileSystemError) as error:
        raise CommandError(f"The dead letters at {path} cannot be read: {error}") from error
    if not found:
        raise CommandError(
            f"There are no dead letters at {path}: no file, or only names that begin with . or _."
        )
    return found


class LetterFiles:
    """The letters of lines in files."""

    def __init__(self, path: str, config: Settings) -> None:
        """Raises CommandError for a path without files."""
        found = files_at(path, config)
        self._files = [file.path for file in found]
        self._bytes = sum(file.size for file in found)

    def letters(self) -> Iterator[PlacedLetter]:
        """Yield the letters of all files. Raises CommandError naming file and line of what is no letter."""
        for file in self._files:
            with open_lines(file) as lines:
                for number, line in enumerate(lines, 1):
                    if line.strip():
                        yield placed(f"{file}, line {number}", line)

    def source(self) -> Source[Any, Any]:
        """Return a bounded source of the lines of these files."""
        lines = StreamFormat.text_line_format()
        return FileSource.for_record_stream_format(lines, *self._files).build()

    def size_bytes(self) -> int:
        """Return the bytes of the files, as they are stored."""
        return self._bytes


def placed(place: str, line: bytes) -> PlacedLetter:
    """Return the letter of a line. Raises CommandError naming the place of a line that is none."""
    try:
        return PlacedLetter(place, DeadLetter.from_json(line))
    except ValueError as error:
        hint = " A table of letters is read by table:FOLDER." if line.startswith(b"PAR1") else ""
        raise CommandError(f"{place}: {error}. Lines of DeadLetter.to_json are expected.{hint}") from None


class ChosenLetters(NamedTuple):
    """The letters to replay: their input, and how many there are of each operator and input."""

    input: LetterInput
    numbers: Mapping[tuple[str, int], int]
    #: Letters of uids that the user did not choose.
    left_out: int

    @property
    def of_uids(self) -> Counter[str]:
        """The number of letters of each uid."""
        found: Counter[str] = Counter()
        for (uid, _), number in self.numbers.items():
            found[uid] += number
        return found

    def each(self) -> Iterator[PlacedLetter]:
        """Yield the chosen letters."""
        return (found for found in self.input.letters() if _target(found.letter) in self.numbers)


def chosen(letters: LetterInput, uids: Collection[str]) -> ChosenLetters:
    """Return the letters of these uids, or all for no uid. Raises CommandError for a uid without letters."""
    numbers: Counter[tuple[str, int]] = Counter(_target(found.letter) for found in letters.letters())
    there = ChosenLetters(letters, numbers, 0).of_uids
    for uid in uids:
        if uid not in there:
            raise CommandError(f"There is no dead letter of {uid!r}. There are letters of {named(there)}.")
    if not numbers:
        raise CommandError("There is no dead letter, so there is nothing to replay.")
    if not uids:
        return ChosenLetters(letters, numbers, 0)
    wanted = {target: number for target, number in numbers.items() if target[0] in uids}
    return ChosenLetters(letters, wanted, sum(numbers.values()) - sum(wanted.values()))


def named(uids: Mapping[str, int]) -> str:
    """The uids with their numbers of letters, for people."""
    return ", ".join(f"{uid!r} ({number})" for uid, number in sorted(uids.items())) or "no operator"


def _target(letter: DeadLetter) -> tuple[str, int]:
    return letter.operator, letter.input
