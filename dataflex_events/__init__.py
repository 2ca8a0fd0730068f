"""Event bus that schedules the data of RL fine-tuning."""

from pathlib import Path

# In a checkout the sub-packages `handlers` and `adapters` lie next to this folder, not inside it.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "handlers").is_dir():
    __path__.append(str(_checkout))
