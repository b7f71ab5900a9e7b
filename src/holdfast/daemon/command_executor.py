"""Executes the commands that operators send to this daemon."""

from __future__ import annotations

import msgspec

from holdfast import __version__
from holdfast.model.errors import InvalidInput
from holdfast.model.fleet import SentCommand, WorkerCommand
from holdfast.operations.attribution import Author

from .processes import ProcessSlotsControl
from .reload import SettingsReloader


class CommandExecutor:
    """Each command works on all processes of this daemon."""

    def __init__(self, slots_control: ProcessSlotsControl, reloader: SettingsReloader) -> None:
        self._slots_control = slots_control
        self._reloader = reloader

    async def execute(self, sent: SentCommand) -> str:
        """Do it; return what there is to say, as JSON, or raise why it cannot be done."""
        command, who = sent.command, Author(sent.by, sent.why)
        if command.action == "reload":
            return msgspec.json.encode(await self._reloader.reload(who)).decode()
        if command.action == "log_level":
            await self._reloader.set_log_level(command.level, who)
        else:
            self._change_slots(command)
        return ""

    def _change_slots(self, command: WorkerCommand) -> None:
        slots_control = self._slots_control
        if command.action == "resize":
            slots_control.resize(command.slots, command.queue)
        elif command.action == "drain":
            slots_control.drain()
        elif command.action == "resume":
            slots_control.resume()
        else:
            raise InvalidInput(
                "action", f"Holdfast {__version__} has no command {command.action!r}: upgrade it"
            )
