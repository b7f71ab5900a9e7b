"""Fixtures: a working directory, and an environment without our variables."""

from tests.settings.conftest import byte_code, here

__all__ = ["byte_code", "here"]
