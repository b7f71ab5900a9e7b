"""Everything that the daemon and apps read: one struct, four doors, one name for each setting.

``lease_seconds`` is the field, the key in the file, ``HOLDFAST_LEASE_SECONDS`` in the environment
and ``--lease-seconds`` on the command line. A flag wins over the environment, the environment over
the file, the file over the default. What cannot be read is an error that names the field, the
value and where it came from; nothing is corrected in silence.
"""

from holdfast.model.masking import masked

from .fields import DEFAULTS, Settings
from .formatting import changed, plain, written
from .parsers import MAX_WORKERS, LogFormat, LogLevel, queue_slots
from .sources import (
    ALIASES,
    DATABASE_URL,
    DEFAULT_FILE,
    OLD_ENVIRONMENT,
    LoadedSettings,
    SettingsReport,
    load,
    read,
    unusable_places,
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
    "OLD_ENVIRONMENT",
    "LoadedSettings",
    "LogFormat",
    "LogLevel",
    "Settings",
    "SettingsReport",
    "changed",
    "load",
    "masked",
    "plain",
    "queue_slots",
    "read",
    "unusable_places",
    "with_origin",
    "written",
]
