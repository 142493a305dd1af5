"""Archives with an interpreter in them, as users pack theirs: a virtual environment, made without a network.

Its packages are those of the environment in which tests run, engine included.
"""

from __future__ import annotations

import os
import venv
import zipfile
from pathlib import Path

import msgspec

import yarrow


def zipped_environment(folder: Path, name: str = "venv.zip", *, with_engine: bool = True) -> Path:
    """`folder/name`, which holds `venv/bin/python`."""
    place = folder / "venv"
    venv.create(place, symlinks=False)
    (site,) = (place / "lib").glob("python*/site-packages")
    if with_engine:
        packages = Path(msgspec.__file__).parent.parent
        # As the environment does it: what is installed editable comes by files of that folder.
        (site / "packages.pth").write_text(
            f"import site; site.addsitedir({str(packages)!r})\n{Path(yarrow.__file__).resolve().parent.parent}\n"
        )
    return _zipped(place, folder / name)


def zipped_script(folder: Path, text: str, name: str = "venv.zip") -> Path:
    """`folder/name`, which holds `venv/bin/python`: a shell script of that text."""
    program = folder / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return _zipped(folder / "venv", folder / name)


def _zipped(place: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path, _, files in os.walk(place):
            for file in files:
                member = Path(path, file)
                archive.write(member, member.relative_to(place.parent))
    return target
