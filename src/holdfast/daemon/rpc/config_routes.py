"""Routes for the settings of a daemon: what it runs by, and reading them again."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.daemon.reload import SettingsReloader

from . import OPERATIONS
from .bodies import ReloadBody
from .routes import Route, answering, read_body

CONFIG = f"{OPERATIONS}config"
RELOAD = f"{OPERATIONS}config/reload"


def config_routes(reloading: SettingsReloader) -> Mapping[str, Route]:
    """Return what ``holdfast config diff`` and ``config reload`` ask an owner."""

    async def running(_body: bytes) -> object:
        return reloading.running()

    async def reload(body: bytes) -> object:
        return await reloading.reload(read_body(body, ReloadBody).who)

    return {f"GET {CONFIG}": answering(running), f"POST {RELOAD}": answering(reload)}
