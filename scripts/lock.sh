#!/usr/bin/env bash
# Write the versions that are tested (constraints.txt) and the hashes of their files (requirements/).
# Versions that constraints.txt has are kept where they can be; UPGRADE=1 takes the newest ones.
set -euo pipefail
cd "$(dirname "$0")/.."

compile() {
  "$BIN/uv" pip compile pyproject.toml --quiet --universal --python-version 3.11 \
    --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}

compile --all-extras ${UPGRADE:+--upgrade} -o constraints.txt
compile --extra build --generate-hashes -c constraints.txt -o requirements/install.txt
compile --extra dev --generate-hashes -c constraints.txt -o requirements/dev.txt
