"""The jars of Hadoop, and those of its KDC.

Owner: the caller's thread; blocks while Maven runs.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.services import jars

POM = Path(__file__).parent / "pom.xml"
#: Of the KDC of a secured cluster, apart: nothing of it is on the class path of Hadoop's daemons.
KDC_POM = Path(__file__).parent / "kdc-pom.xml"


def jar_folder(pom: Path = POM) -> Path:
    """The folder with all jars that `pom` names, and those that they need.

    Raises ServiceError when Maven fails, MissingProgramError when it is absent.
    """
    return jars.jar_folder(pom, "hadoop" if pom.stem == "pom" else pom.stem.removesuffix("-pom"))
