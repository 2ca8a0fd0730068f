import inspect

import dataflex_events
from dataflex_events import _api


def test_all_is_sorted_and_complete():
    public = [name for name, value in vars(_api).items() if not name.startswith("_") and not inspect.ismodule(value)]
    assert sorted(public) == dataflex_events.__all__


def test_every_public_name_can_be_imported_from_the_package():
    assert all(getattr(dataflex_events, name) is getattr(_api, name) for name in dataflex_events.__all__)
    assert set(dataflex_events.__all__) <= set(dir(dataflex_events))


def test_every_public_name_is_documented():
    missing = [name for name in dataflex_events.__all__ if not inspect.getdoc(getattr(dataflex_events, name))]
    assert missing == []
