"""Leaves a file in `$FAREND_DIR` for every process that imports verl. Loaded by `VERL_USE_EXTERNAL_MODULES`."""

import os
from pathlib import Path

Path(os.environ["FAREND_DIR"], f"process-{os.getpid()}").touch()
