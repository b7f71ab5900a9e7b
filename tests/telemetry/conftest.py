"""Fixtures for real daemons, from ``tests/e2e``."""

from tests.e2e.conftest import byte_code, rig

__all__ = ["byte_code", "rig"]
