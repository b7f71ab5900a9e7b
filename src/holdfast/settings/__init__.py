"""The settings of daemons and apps: one struct, five sources, one name for each setting.

``lease_seconds`` is the field, the key in the file, ``HOLDFAST_LEASE_SECONDS`` in the environment
and ``--lease-seconds`` on the command line. A flag wins over what the application names (its store
and its file), that over the environment, the environment over the file, the file over the default.
A bad value is an error that names the field, the value and its source; nothing is corrected
silently.
"""

from holdfast.model.redaction import masked

from .fields import DEFAULTS, Settings
from .formatting import changed, formatted, plain
from .parsers import MAX_WORKERS, LogFormat, LogLevel, queue_slots
from .sources import (
    ALIASES,
    DATABASE_URL,
    DEFAULT_FILE,
    NO_APPLICATION,
    OLD_ENVIRONMENT,
    ApplicationSettings,
    LoadedSettings,
    SettingsReport,
    load,
    read,
    unusable_paths,
    with_origin,
)
from .store_url import MEMORY_STORE

__all__ = [
    "ALIASES",
    "DATABASE_URL",
    "DEFAULTS",
    "DEFAULT_FILE",
    "MAX_WORKERS",
    "MEMORY_STORE",
    "NO_APPLICATION",
    "OLD_ENVIRONMENT",
    "ApplicationSettings",
    "LoadedSettings",
    "LogFormat",
    "LogLevel",
    "Settings",
    "SettingsReport",
    "changed",
    "formatted",
    "load",
    "masked",
    "plain",
    "queue_slots",
    "read",
    "unusable_paths",
    "with_origin",
]
