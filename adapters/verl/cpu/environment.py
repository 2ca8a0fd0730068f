"""Environment variables of a run on the CPU.

`VERL_PLATFORM=cpu` is the only one that a user has to set: it makes the plugin set the others before Ray
starts, and Ray's processes inherit them.
"""

from __future__ import annotations

import os
import sys

ENVIRONMENT = {
    # verl registers its FSDP engines for cuda and npu only; this picks the ones registered for cuda
    "VERL_ENGINE_DEVICE": "cuda",
    # one core a process: there are more processes than cores, and sums are always taken in the same order
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TQ_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # each rollout travels to the reward function on its own; verl's other way takes four times as long
    "VERL_DATAPROTO_SERIALIZATION_METHOD": "numpy",
    # nothing is downloaded and nothing listens on another interface than the loopback
    "HF_HUB_OFFLINE": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's name for: this machine only, bind to 127.0.0.1
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    # quicker start, fewer helpers
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_prestart_worker_first_driver": "0",  # verl's processes need an environment that prestarted ones lack
}


def set_environment() -> None:
    """Set what the user has not set. Must run before Ray is started."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # verl imported Ray before it loaded its plugins, and Ray reads this one when it is imported
    ray_constants = sys.modules.get("ray._private.ray_constants")
    if ray_constants is not None and os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0":
        ray_constants.ENABLE_RAY_CLUSTER = False
