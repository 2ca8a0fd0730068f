"""A program that calls verl's entry point for several command lines: importing verl takes longer than a call.

Its argument is a JSON file, name -> arguments. For each it prints `=== name`, then the exception with which the entry
point ended, or `accepted`.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path


def main() -> None:
    from hydra.core.global_hydra import GlobalHydra
    from verl.trainer.main_ppo import main as entry_point

    for name, arguments in json.loads(Path(sys.argv[1]).read_text()).items():
        print(f"=== {name}", flush=True)
        GlobalHydra.instance().clear()
        sys.argv[1:] = arguments
        try:
            entry_point()
        except Exception:
            traceback.print_exc(file=sys.stdout)
        else:
            print("accepted")


if __name__ == "__main__":
    main()
