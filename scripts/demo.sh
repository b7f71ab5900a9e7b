#!/bin/sh
# 100 jobs, a kill -9 in the middle, and nothing lost. `make demo` runs it on a fresh machine.
set -eu
cd "$(dirname "$0")/.."
make --no-print-directory install
exec .venv/bin/python scripts/demo.py
