#!/bin/sh
# Removes ./data, the default store, if nothing is lost with it: part of `make clean`.
set -eu
data=./data
[ -e "$data" ] || exit 0
keep() {
  echo "kept $data: $1" >&2
  exit 0
}
[ -f "$data/LOCK" ] && [ -d "$data/log" ] || keep "it is not a store of Holdfast"
holdfast=.venv/bin/holdfast
[ -x "$holdfast" ] || keep "without .venv nothing can tell whether it holds work; remove it yourself"
status=$("$holdfast" --store "$data" status) || keep "it cannot be read, or a daemon has it"
if "$holdfast" --store "$data" config diff 2>/dev/null | grep -q '^the daemon'; then
  keep "a daemon runs on it: stop it first"
fi
unfinished=$(echo "$status" | awk '/^(pending|in_flight|dead|blocked):/ { sum += $2 } END { print sum }')
[ "$unfinished" = 0 ] || keep "it holds $unfinished unfinished or dead jobs; remove it yourself"
rm -rf "$data"
echo "removed $data, which held no unfinished and no dead jobs"
