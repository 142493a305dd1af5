"""A yarn-site.xml of their own for Skein's ApplicationMasters, so that containers come within a second.

Owner: the client's thread that submits; pure. Skein's ApplicationMaster talks to YARN only every 5 s while it waits for
nothing, so that a container asked for then comes that much later. It has no option for it, but takes half of
`yarn.am.liveness-monitor.expiry-interval-ms` where that is less; for nothing else does it read that key, whose meaning
for the ResourceManager is in the ResourceManager's own file. Jars of the container's folder stand before Hadoop's
configuration on its class path: one with the client's yarn-site.xml and this key changed is all it takes.
"""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path
from typing import Final

#: The jar's name in the master's container.
SITE_JAR: Final = "yarrow-skein-site.jar"
#: Milliseconds between two heartbeats of Skein's ApplicationMaster.
HEARTBEAT_MS: Final = 500
_KEY: Final = "yarn.am.liveness-monitor.expiry-interval-ms"
_FILE: Final = "yarn-site.xml"


def site_jar(configuration_folder: Path) -> bytes | None:
    """The jar; None where the file includes others, which would not be found from inside it, or cannot be read."""
    try:
        root = ElementTree.fromstring((configuration_folder / _FILE).read_bytes())
    except (OSError, ElementTree.ParseError):
        return None
    if any(element.tag.endswith("include") for element in root.iter()):
        return None
    for known in [one for one in root.findall("property") if (one.findtext("name") or "").strip() == _KEY]:
        root.remove(known)
    changed = ElementTree.SubElement(root, "property")
    ElementTree.SubElement(changed, "name").text = _KEY
    ElementTree.SubElement(changed, "value").text = str(2 * HEARTBEAT_MS)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as jar:
        # A fixed time: the same configuration makes the same bytes.
        jar.writestr(zipfile.ZipInfo(_FILE, (1980, 1, 1, 0, 0, 0)), ElementTree.tostring(root, "utf-8"))
    return buffer.getvalue()
