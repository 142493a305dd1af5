#!/bin/sh
# Starts, attaches to or ends a session on YARN: `yarrow session` under the name that scripts written for Flink call.
set -eu
root="$(cd "$(dirname "$0")/.." && pwd)"
if command -v yarrow >/dev/null 2>&1; then
    exec yarrow session "$@"
fi
"$root/scripts/environment" >&2
exec "$root/.venv/bin/yarrow" session "$@"
