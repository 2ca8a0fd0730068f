"""A Ray that starts without what only its dashboard and its autoscaler need.

Ray's `include_dashboard=False` leaves out the pages. It still starts the dashboard's server, waits for it, and loads
the dashboard's modules into the agent for which each node waits: half of the time that `ray.init` takes on two cores.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any


def without_dashboard(node: ModuleType, utils: ModuleType) -> None:
    """Patch Ray. Concerns only the process that starts it, and only where no dashboard is wanted.

    A Ray that is built otherwise is left as it is.

    Args:
        node: `ray._private.node`.
        utils: `ray._private.utils`.
    """
    if not (hasattr(node.Node, "start_api_server") and hasattr(utils, "get_dashboard_dependency_error")):
        return
    original_init = node.Node.__init__
    original_server = node.Node.start_api_server
    original_error = utils.get_dashboard_dependency_error

    def __init__(self: Any, ray_params: Any, *args: Any, **kwargs: Any) -> None:
        unwanted = ray_params.include_dashboard is False
        if unwanted:
            ray_params.no_monitor = True
            # as in an installation of Ray without the dashboard's requirements
            utils.get_dashboard_dependency_error = lambda: ImportError("include_dashboard is false")
        try:
            original_init(self, ray_params, *args, **kwargs)
        finally:
            utils.get_dashboard_dependency_error = original_error

    def start_api_server(self: Any, *, include_dashboard: bool | None, **kwargs: Any) -> None:
        if include_dashboard is False:
            self._webui_url = None
        else:
            original_server(self, include_dashboard=include_dashboard, **kwargs)

    node.Node.__init__ = __init__
    node.Node.start_api_server = start_api_server
