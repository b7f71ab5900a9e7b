"""The flags that Holdfast itself follows, and what they are when they are not set."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

OUTAGE_MODE = "outage_mode"
"""Switches outages off, for all queues or, as ``outage_mode/NAME``, for one or a dependency."""
AUTO_REPLAY = "auto_replay"
"""Switches auto-replay off; ``auto_replay/NAME`` is for a queue, a dependency or a reason."""
RATE_LIMITED = "rate_limited"
"""Letters with this reason are replayed only if their own flag is on."""


class KnownFlag(msgspec.Struct, frozen=True):
    """A flag with an effect; ``on`` is its default."""

    name: str
    on: bool
    what: str


KNOWN_FLAGS = (
    KnownFlag(AUTO_REPLAY, on=True, what="transient dead letters go back by themselves"),
    KnownFlag(f"{AUTO_REPLAY}/{RATE_LIMITED}", on=False, what="those of a rate limit too"),
    KnownFlag(OUTAGE_MODE, on=True, what="jobs wait while what they need is out"),
)
"""Further ones are ``auto_replay/NAME`` and ``outage_mode/NAME``."""


def outage_mode_on(flags: Mapping[str, bool], *names: str) -> bool:
    """Whether outages are noticed for a queue or a dependency of these names."""
    return _on(flags, OUTAGE_MODE, names)


def auto_replay_on(flags: Mapping[str, bool], reason: str, *names: str) -> bool:
    """Whether letters of this reason, in a queue of these names, go back without a person."""
    if reason == RATE_LIMITED and not flags.get(f"{AUTO_REPLAY}/{reason}", False):
        return False
    return _on(flags, AUTO_REPLAY, (reason, *names))


def _on(flags: Mapping[str, bool], flag: str, names: tuple[str, ...]) -> bool:
    """Return what the flags of these names say together, else what the general one says."""
    own = [flags[one] for name in names if (one := f"{flag}/{name}") in flags]
    return all(own) if own else flags.get(flag, True)
