"""The settings that a daemon runs by: which of them can change meanwhile, and changing them."""

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
    "snapshot_interval_seconds",
    "drain_seconds",
    "memory_limit_bytes",
    "log_level",
    "log_format",
    "flags",
)
"""What can change while the daemon runs; of ``queues`` only the numbers of slots."""
SETTLER = "settings"
"""Who it is that switches a flag because the settings say so, and that reloads at a signal."""
SIGNAL = "SIGHUP"


class SettingChange(msgspec.Struct, frozen=True):
    """One setting that has another value now, as people write it."""

    field: str
    before: str
    after: str
    origin: str


class ReloadResult(msgspec.Struct, frozen=True):
    """What came of reading the settings again."""

    changed: list[SettingChange]
    needs_restart: list[SettingChange]
    """What the settings say now and only a new start can do."""
    warnings: list[str]


class RunningSettings(msgspec.Struct, frozen=True):
    """What a daemon runs by. Secrets are masked."""

    process: int
    settings: dict[str, object]
    origins: Mapping[str, str]
    reloadable: tuple[str, ...] = RELOADABLE


class SettingsReloader:
    """The settings of a daemon that is up, and the way from them to the next."""

    def __init__(
        self,
        loaded: LoadedSettings,
        read_again: Callable[[], LoadedSettings] | None,
        operations: Operations,
        *,
        can_take: Callable[[Settings], bool],
        take: Callable[[Settings], None],
    ) -> None:
        """Take what runs now. ``can_take`` says whether the same queues are served."""
        self._loaded = loaded
        self._read_again = read_again
        self._operations = operations
        self._can_take = can_take
        self._take = take
        self._one_at_a_time = asyncio.Lock()
        self._under_way: set[asyncio.Task[None]] = set()

    def running(self) -> RunningSettings:
        """Return what holds now."""
        loaded = self._loaded
        return RunningSettings(os.getpid(), plain(loaded.settings), dict(loaded.origins))

    async def switch_flags(self, before: Mapping[str, bool], now: LoadedSettings) -> None:
        """Switch the flags that the settings name, as far as they differ from these."""
        who = Author(SETTLER, now.origins.get("flags", "default")[:TEXT_LIMIT])
        for name, on in now.settings.flags.items():
            if before.get(name) is not on:
                await self._operations.set_flag(name, who, on=on)

    async def reload(self, who: Author) -> ReloadResult:
        """Read the settings again and take over what can change, as this person asked.

        Raise ``InvalidInput`` if there is anything wrong with them; then nothing has changed.
        """
        if self._read_again is None:
            raise Unavailable("this daemon has nowhere to read its settings from again")
        async with self._one_at_a_time:
            wanted = self._read_again()
            loaded, report = self._merged(wanted)
            before = self._loaded.settings.flags
            await self.switch_flags(before, loaded)
            if report.changed:
                await self._operations.note_reload([one.field for one in report.changed], who)
            self._take(loaded.settings)
            self._loaded = loaded
        log.emit(
            "daemon.reloaded",
            changed=",".join(change.field for change in report.changed) or "nothing",
            needs_restart=",".join(change.field for change in report.needs_restart) or "nothing",
        )
        for warning in report.warnings:
            log.emit("daemon.settings_doubtful", warning=warning)
        return report

    def reload_soon(self) -> None:
        """Reload because of a signal, without anybody waiting for it; a refusal is logged."""
        task = asyncio.get_running_loop().create_task(self._reload_quietly())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _reload_quietly(self) -> None:
        try:
            await self.reload(Author(SETTLER, SIGNAL))
        except HoldfastError as error:
            log.emit("daemon.reload_refused", error=error)

    def _merged(self, wanted: LoadedSettings) -> tuple[LoadedSettings, ReloadResult]:
        """Return the settings with what can change taken from these, and what that means."""
        running = self._loaded
        differ = [
            field
            for field in Settings.__struct_fields__
            if getattr(wanted.settings, field) != getattr(running.settings, field)
        ]
        fixed = {field for field in differ if field not in RELOADABLE}
        if "queues" in differ and not self._can_take(wanted.settings):
            fixed.add("queues")
        taken = [field for field in differ if field not in fixed]
        # Of old and new together: what clashes only so is refused as well.
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
            [*wanted.warnings, *self._left_alone(settings)],
        )
        return LoadedSettings(settings, origins), report

    def _left_alone(self, settings: Settings) -> list[str]:
        """Return what a person may not expect: a flag stays when settings no longer name it."""
        return [
            f"flags: {name} stays {'on' if on else 'off'}: it is not named any more, and nothing "
            "switches it back"
            for name, on in self._loaded.settings.flags.items()
            if name not in settings.flags
        ]
