"""What the soak has found, kept in a page: how often every test ran and failed, the last outcome with its day and the
commit that it ran on, and the last failure.

Owner: the main thread of `bench/soak`. Results are printed and stored as they come, so that a run that is interrupted
has left what it knew; a later run of a test adds to the earlier ones. Nothing else of the page is touched.
"""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "soak.md"
BEGIN, END = "<!-- results: written by bench/soak -->", "<!-- end of results -->"
HEAD = (
    "| fault | test | runs | failed | took | last outcome | date | commit | last failure |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)
#: Behind a commit that the working tree differed from.
CHANGED = "+"
PASSED, FAILED = "passed", "FAILED"
_NUMBER = re.compile(r"\btest_(\d+)_")
_NEMESIS = "nemesis"


@dataclass(frozen=True, slots=True)
class Row:
    """How one test ended."""

    name: str
    seconds: float
    outcome: str
    #: False for what kept a run from coming to its tests: it is told, and not stored, as no later run replaces it.
    is_test: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """All that the page says of a test: of its runs together, of the last one, and of the last that failed."""

    test: str
    runs: int
    failed: int
    took: str
    outcome: str
    date: str
    commit: str
    #: Day, commit and what it said; "-" where none has failed.
    last_failure: str = "-"

    @staticmethod
    def of(row: Row, date: str, commit: str) -> Result:
        """The result of a run on that day with that commit."""
        outcome = row.outcome.replace("|", "/")
        failed = outcome.startswith(FAILED)
        said = f"{date} {commit}: {outcome.removeprefix(FAILED).removeprefix(': ')}" if failed else "-"
        return Result(row.name, 1, int(failed), f"{row.seconds:.0f} s", outcome, date, commit, said)

    def after(self, earlier: Result) -> Result:
        """This run as the last one behind those of before."""
        last_failure = self.last_failure if self.failed else earlier.last_failure
        return replace(
            self,
            runs=self.runs + earlier.runs,
            failed=self.failed + earlier.failed,
            last_failure=last_failure,
        )

    @property
    def fault(self) -> str:
        """Its number in docs/faults.md, by the name of the test; `nemesis`, or `-` for what has none."""
        if _NEMESIS in self.test:
            return _NEMESIS
        numbers = _NUMBER.findall(self.test)
        return numbers[0] if numbers else "-"

    @property
    def seconds(self) -> float:
        """How long it took."""
        return float(self.took.removesuffix(" s"))

    def __str__(self) -> str:
        counted = f"| {self.fault} | {self.test} | {self.runs} | {self.failed} | {self.took} | {self.outcome}"
        return f"{counted} | {self.date} | {self.commit} | {self.last_failure} |"

    @staticmethod
    def parsed(line: str) -> Result:
        """The opposite of str(); ValueError for a line that is none."""
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != len(fields(Result)) + 1:
            raise ValueError(
                f"expected the line of a result with {len(fields(Result)) + 1} cells, not {line!r}"
            )
        _, test, runs, failed, *others = cells
        return Result(test, int(runs), int(failed), *others)


class ResultsPage:
    """The table between the two marks of a page; a page without them is given one at its end."""

    def __init__(self, path: Path = PAGE) -> None:
        self._path = path

    def results(self) -> list[Result]:
        """Those that are stored."""
        table = self._parts()[1].strip().removeprefix(HEAD)
        return [Result.parsed(line) for line in table.splitlines() if line.strip()]

    def put(self, new: Iterable[Result]) -> None:
        """Stores results, each as the last of its test."""
        before, _, after = self._parts()
        known = {result.test: result for result in self.results()}
        for result in new:
            known[result.test] = result.after(known[result.test]) if result.test in known else result
        lines = "\n".join(str(result) for result in sorted(known.values(), key=_order))
        self._path.write_text(f"{before}{BEGIN}\n{HEAD}\n{lines}\n{END}{after}", "utf-8")

    def _parts(self) -> tuple[str, str, str]:
        """What stands before the marks, between them and behind."""
        text = self._path.read_text("utf-8") if self._path.exists() else ""
        before, begin, rest = text.partition(BEGIN)
        if not begin:
            return (f"{text.rstrip()}\n\n" if text.strip() else ""), "", "\n"
        table, _, after = rest.partition(END)
        return before, table, after


def report(rows: Iterable[Row], page: ResultsPage, commit: str) -> int:
    """Prints and stores rows as they come; the exit status: 1 when one failed, or none passed.

    `commit`: what the tests run on, looked at before the first, since people go on working meanwhile.
    """
    print(HEAD, flush=True)
    outcomes = []
    for row in rows:
        result = Result.of(row, datetime.date.today().isoformat(), commit)
        print(result, flush=True)
        if row.is_test:
            page.put([result])
        outcomes.append(row.outcome)
    return 1 if any(outcome.startswith(FAILED) for outcome in outcomes) or PASSED not in outcomes else 0


def present_commit() -> str:
    """Of the working tree, marked when code or tests differ from it."""

    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)

    commit = git("rev-parse", "--short", "HEAD").stdout.strip()
    # The page itself is among the documents.
    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!docs").returncode != 0
    return f"{commit}{CHANGED if changed else ''}" if commit else "unknown"


def _order(result: Result) -> tuple[int, list[tuple[int, str]]]:
    """By number, what has none behind, the nemesis last; the same by name, with its numbers as such."""
    group = int(result.fault) if result.fault.isdecimal() else 1000 if result.fault == "-" else 2000
    words = re.findall(r"\d+|\D+", result.test)
    return group, [(int(word), "") if word.isdecimal() else (0, word) for word in words]
