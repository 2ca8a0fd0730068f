"""Entry point of verl's plugin group: runs at the end of `import verl`, in every process."""

import os

if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
    from dataflex_events.adapters.verl.cpu import install

    install.install()
