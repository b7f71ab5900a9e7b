"""The settings of a running daemon, and reloading those that can change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import msgspec

from holdfast.engines.structured_log import StructuredLog
from holdfast.model.audit import TEXT_LIMIT
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.operations.attribution import Author
from holdfast.operations.operations import Operations
from holdfast.settings import LoadedSettings, Settings, formatted, plain

log = StructuredLog("holdfast.daemon")

RELOADABLE = (
    "worker_count",
    "queues",
    "batch_size",
    "poll_interval_seconds",
    "task_timeout_seconds",
    "lease_seconds",
    "reclaim_interval_seconds",
    "max_attempts",
    "base_backoff_seconds",
    "max_backoff_seconds",
    "backoff_jitter",
    "snapshot_interval_seconds",
    "drain_seconds",
    "memory_limit_bytes",
    "cpu_limit_seconds",
    "log_level",
    "log_format",
    "flags",
)
"""Settings that can change while the daemon runs; of ``queues`` only the numbers of slots."""
SETTINGS_AUTHOR = "settings"
"""The author of flag changes that come from the settings, and of reloads at a signal."""
SIGNAL = "SIGHUP"


class SettingChange(msgspec.Struct, frozen=True):
    """A setting with a new value, as people write it."""

    field: str
    before: str
    after: str
    origin: str


class ReloadResult(msgspec.Struct, frozen=True):
    """The result of a reload."""

    changed: list[SettingChange]
    needs_restart: list[SettingChange]
    """Changes that need a restart."""
    warnings: list[str]


class RunningSettings(msgspec.Struct, frozen=True):
    """The settings of a running daemon. Secrets are masked."""

    process: int
    settings: dict[str, object]
    origins: Mapping[str, str]
    reloadable: tuple[str, ...] = RELOADABLE


class SettingsReloader:
    """Holds the settings of a running daemon, and reloads them."""

    def __init__(
        self,
        loaded: LoadedSettings,
        load: Callable[[], LoadedSettings] | None,
        operations: Operations,
        *,
        can_apply: Callable[[Settings], bool],
        apply: Callable[[Settings], None],
    ) -> None:
        """``can_apply`` returns whether the same queues are served."""
        self._loaded = loaded
        self._load = load
        self._operations = operations
        self._can_apply = can_apply
        self._apply = apply
        self._lock = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def running(self) -> RunningSettings:
        """Return the present settings."""
        loaded = self._loaded
        return RunningSettings(os.getpid(), plain(loaded.settings), dict(loaded.origins))

    async def switch_flags(self, before: Mapping[str, bool], now: LoadedSettings) -> None:
        """Switch the flags of the settings that differ from ``before``."""
        who = Author(SETTINGS_AUTHOR, now.origins.get("flags", "default")[:TEXT_LIMIT])
        for name, on in now.settings.flags.items():
            if before.get(name) is not on:
                await self._operations.set_flag(name, who, on=on)

    async def reload(self, who: Author) -> ReloadResult:
        """Read the settings again and apply what can change, for this person.

        Raise ``InvalidInput``, and change nothing, if they are wrong.
        """
        if self._load is None:
            raise Unavailable("this daemon has no source to read its settings from again")
        async with self._lock:
            wanted = self._load()
            loaded, report = self._merged(wanted)
            before = self._loaded.settings.flags
            await self.switch_flags(before, loaded)
            if report.changed:
                await self._operations.note_reload([one.field for one in report.changed], who)
            self._apply(loaded.settings)
            self._loaded = loaded
        log.emit(
            "daemon.reloaded",
            changed=",".join(change.field for change in report.changed) or "nothing",
            needs_restart=",".join(change.field for change in report.needs_restart) or "nothing",
        )
        for warning in report.warnings:
            log.emit("daemon.settings_doubtful", warning=warning)
        return report

    async def set_log_level(self, level: str, who: Author) -> None:
        """Log from this level on, until a reload or a restart."""
        async with self._lock:
            loaded = self._loaded
            settings = msgspec.structs.replace(loaded.settings, log_level=level)
            origins = {**loaded.origins, "log_level": f"{who.by}, by command"}
            self._apply(settings)
            self._loaded = LoadedSettings(settings, origins)

    def reload_soon(self) -> None:
        """Reload in the background, because of a signal; an error is logged."""
        task = asyncio.get_running_loop().create_task(self._reload_quietly())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _reload_quietly(self) -> None:
        try:
            await self.reload(Author(SETTINGS_AUTHOR, SIGNAL))
        except HoldfastError as error:
            log.emit("daemon.reload_refused", error=error)

    def _merged(self, wanted: LoadedSettings) -> tuple[LoadedSettings, ReloadResult]:
        """Return the running settings with the changes that can be applied, and the result."""
        running = self._loaded
        differ = [
            field
            for field in Settings.__struct_fields__
            if getattr(wanted.settings, field) != getattr(running.settings, field)
        ]
        fixed = {field for field in differ if field not in RELOADABLE}
        if "queues" in differ and not self._can_apply(wanted.settings):
            fixed.add("queues")
        taken = [field for field in differ if field not in fixed]
        # Old and new values together may contradict each other: that is refused too.
        values = {field: getattr(wanted.settings, field) for field in taken}
        settings = msgspec.structs.replace(running.settings, **values)
        origins = {**wanted.origins, **{field: running.origins[field] for field in fixed}}
        changes = {
            field: SettingChange(
                field,
                formatted(field, getattr(running.settings, field)),
                formatted(field, getattr(wanted.settings, field)),
                wanted.origins[field],
            )
            for field in differ
        }
        report = ReloadResult(
            [changes[field] for field in taken],
            [changes[field] for field in differ if field in fixed],
            [*wanted.warnings, *self._flag_warnings(settings)],
        )
        return LoadedSettings(settings, origins), report

    def _flag_warnings(self, settings: Settings) -> list[str]:
        """Return warnings for flags that the settings no longer name: they stay as they are."""
        return [
            f"flags: {name} stays {'on' if on else 'off'}: it is not named any more, and nothing "
            "switches it back"
            for name, on in self._loaded.settings.flags.items()
            if name not in settings.flags
        ]
