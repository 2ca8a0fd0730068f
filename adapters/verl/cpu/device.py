"""The `cpu` platform: verl's hardware interface answered without an accelerator.

verl counts accelerators in Ray under the resource name of the platform and knows only `GPU` and `NPU`. The
lab therefore starts Ray with pretended GPUs (`lab_overrides` does) and this platform says `GPU` where Ray is
concerned and `cpu` where torch is concerned.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.plugin.platform import PlatformBase

Device = Any  # verl passes indices, torch.device or None


def _resident_bytes(device: Device = None) -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _memory_info(device: Device = None) -> tuple[int, int]:
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)


class _CpuModule(types.ModuleType):
    """`torch.cpu` plus the functions of `torch.cuda` that verl calls on the platform's device module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    # Memory figures are those of the process, so that `perf/max_memory_*` stays meaningful.
    memory_allocated = max_memory_allocated = staticmethod(_resident_bytes)
    memory_reserved = max_memory_reserved = staticmethod(_resident_bytes)
    mem_get_info = staticmethod(_memory_info)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)

    @staticmethod
    def get_rng_state(device: Device = None) -> torch.Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: torch.Tensor, device: Device = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def get_device_name(device: Device = None) -> str:
        return "cpu"

    @staticmethod
    def _nothing(*args: Any, **kwargs: Any) -> None:
        return None

    empty_cache = ipc_collect = reset_peak_memory_stats = set_per_process_memory_fraction = _nothing


class CpuPlatform(PlatformBase):
    """One device without an index; everything that only an accelerator has does nothing."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _CpuModule("dataflex_cpu_device")

    def is_available(self) -> bool:
        return True

    def current_device(self) -> torch.device:  # an int would mean cuda:<int> to torch
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None
