"""What every test here gets: a rig for real daemons, as in ``tests/daemon``."""

from tests.daemon.conftest import byte_code, rig

__all__ = ["byte_code", "rig"]
