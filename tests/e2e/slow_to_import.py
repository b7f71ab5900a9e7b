"""An application that takes longer to import than its tasks may take."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from .jobs import app
else:
    from jobs import app

__all__ = ["app"]

time.sleep(1.2)
