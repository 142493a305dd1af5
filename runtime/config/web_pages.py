"""The archive with REST's pages: the one that `web.pages` names, or the one that `yarrow dashboard` keeps.

Owner: any thread; looks at files. It fetches nothing, and no server does.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

from yarrow.runtime.common.cache_folder import cache_folder
from yarrow.runtime.config.options import web
from yarrow.runtime.config.settings import ReadableConfig
from yarrow.runtime.config.values.errors import ConfigError

#: Flink's page, compiled: the artifact, its version, and the SHA-256 of its one file.
GROUP: Final = "org.apache.flink"
ARTIFACT: Final = "flink-runtime-web"
VERSION: Final = "2.3.0"
SHA256: Final = "c5476003a9357e6ce876a19d1daa7e37b573ad9fada6448fe665de8bad7162e8"
#: The folder of the pages in the archive, and the first page.
FOLDER: Final = "web/"
FIRST_PAGE: Final = "index.html"
#: The value of web.pages that shows none.
NO_PAGES: Final = "none"


def kept_archive() -> Path:
    """The path of the archive that `yarrow dashboard` keeps; the name holds the hash of the content."""
    return cache_folder() / "dashboard" / f"{ARTIFACT}-{VERSION}-{SHA256[:16]}.jar"


def chosen_archive(config: ReadableConfig) -> Path | None:
    """The archive with the pages; None = none is wanted, or none exists and none was named.

    Raises ConfigError for a file that is named and is no such archive.
    """
    named = config.get(web.PAGES)
    if named is None:
        kept = kept_archive()
        return kept if kept.is_file() else None
    if named.strip().lower() == NO_PAGES:
        return None
    path = Path(named)
    why = refusal_of(path)
    if why:
        raise ConfigError(
            f"{web.PAGES.key} is {named}: {why}. Name an archive with {FOLDER}{FIRST_PAGE} in it, as `yarrow dashboard`"
            f" keeps one, or `{NO_PAGES}`.",
            (web.PAGES.key,),
        )
    return path


def refusal_of(path: Path) -> str:
    """Why a file is no archive of pages; empty when it is one."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive.getinfo(FOLDER + FIRST_PAGE)
    except OSError as error:
        return error.strerror or str(error)
    except zipfile.BadZipFile:
        return "it is no zip or jar"
    except KeyError:
        return f"there is no {FOLDER}{FIRST_PAGE} in it"
    return ""
