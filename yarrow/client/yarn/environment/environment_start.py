"""The script that stands for the interpreter in a container: unpacks the environment once a node, then starts it.

Owner: none; the text of one program for /bin/sh. The archives come as plain files, because a NodeManager took
far longer than tar to unpack ten thousand files. (It sets the mode of each; without Hadoop's native library
it probably starts a process for each.) Unpacked files lie beside the archive in the node's cache, in the
folder that YARN made for it and removes with it. If that folder is not writable, they lie in the container.
"""

from __future__ import annotations

from typing import Final

from yarrow.runtime.yarn.layout import ENVIRONMENT_FOLDER, SPARK_JARS_FOLDER, START_FILE

#: How the script is called in a container.
INTERPRETER: Final = f"./{START_FILE}"
#: Folder of editable installs, beside the environment.
EDITABLE_FOLDER: Final = f"{ENVIRONMENT_FOLDER}-editable"
#: Suffix of an archive's name after that of its folder.
ARCHIVE_SUFFIX: Final = ".tar.gz"

START_SCRIPT: Final = f"""#!/bin/sh
# Unpacks what this container's Python is made of, unless another container of the node has done so; starts it.
here=${{0%/*}}
case $here in /*) ;; *) here=$PWD/$here ;; esac
here=${{here%/.}}

unpack() {{
    [ -e "$here/$1" ] && return 0
    archive=$(readlink -f "$here/$1{ARCHIVE_SUFFIX}") || return 1
    place=$archive.unpacked
    if [ ! -d "$place" ]; then
        (: > "$archive.lock") 2>/dev/null || place=$here/$1.unpacked
        (
            # Others wait; where there is no flock they unpack as well, and the first one's stays.
            if [ "$place" = "$archive.unpacked" ] && command -v flock >/dev/null; then
                exec 9>"$archive.lock" && flock 9
                [ -d "$place" ] || rm -rf "$place".part-*
            fi
            [ -d "$place" ] && exit 0
            part=$place.part-$$
            mkdir "$part" && tar -xzof "$archive" -C "$part" && {{ mv -T "$part" "$place" || [ -d "$place" ]; }}
            status=$?
            rm -rf "$part"
            exit $status
        ) || return 1
    fi
    ln -sfn "$place" "$here/$1"
}}

for name in {ENVIRONMENT_FOLDER} {EDITABLE_FOLDER} {SPARK_JARS_FOLDER}; do
    if [ -e "$here/$name{ARCHIVE_SUFFIX}" ] && ! unpack "$name"; then
        echo "The Python environment $here/$name{ARCHIVE_SUFFIX} cannot be unpacked on $(hostname):" \\
            "is the disk of yarn.nodemanager.local-dirs full?" >&2
        exit 1
    fi
done
exec "$here/{ENVIRONMENT_FOLDER}/bin/python3" "$@"
"""
