"""Load balancer of the rollout servers.

verl's own does the same and more, but its process would import all of verl's workers, seconds of a short run.
verl loads this one through `rollout.router_config_path` (the lab's `router.yaml`).
"""

from __future__ import annotations

from typing import Any


class Router:
    """Sends each request to the server with the fewest requests in flight, the first of them if there are
    several.

    Args:
        servers: Server name -> Ray handle.
        config: The router's YAML file; nothing in it is needed.
    """

    def __init__(self, servers: dict[str, Any], config: dict[str, Any] | None = None) -> None:
        self._servers = dict(servers)
        self._in_flight = dict.fromkeys(servers, 0)

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        if not self._servers:
            # verl's asynchronous client recognises this text and tries again
            raise RuntimeError("No available servers in load balancer")
        name = min(self._servers, key=self._in_flight.__getitem__)
        self._in_flight[name] += 1
        return name, self._servers[name]

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        if self._in_flight.get(server_id, 0) > 0:
            self._in_flight[server_id] -= 1

    def acquire_servers(self, count: int) -> list[tuple[str, Any]]:
        """`acquire_server` for several requests."""
        return [self.acquire_server("") for _ in range(count)]

    def release_servers(self, counts: dict[str, int]) -> None:
        """`release_server` for several requests: server name -> how many."""
        for name, count in counts.items():
            if name in self._in_flight:
                self._in_flight[name] = max(0, self._in_flight[name] - count)

    def require_acquire_fields(self) -> list[str]:
        return []

    def require_release_fields(self) -> list[str]:
        return []

    def add_servers(self, servers: dict[str, Any]) -> None:
        self._servers.update(servers)
        self._in_flight.update(dict.fromkeys(servers, 0))

    def remove_servers(self, server_ids: list[str]) -> None:
        for name in server_ids:
            self._servers.pop(name, None)
            self._in_flight.pop(name, None)

    def get_inflight_count(self, server_id: str) -> int:
        return self._in_flight.get(server_id, 0)

    def get_all_servers(self) -> list[str]:
        return list(self._servers)

    def clear_sticky_cache(self) -> dict[str, Any]:
        return {"cleared_entries": 0, "server_loads": dict(self._in_flight)}

    def get_status(self) -> dict[str, Any]:
        return {
            "servers": dict(self._in_flight),
            "total_inflight": self.get_total_inflight(),
            "active_servers": len(self._servers),
            "registered_handles": list(self._servers),
        }

    def get_total_inflight(self) -> int:
        return sum(self._in_flight.values())
