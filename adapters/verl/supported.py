"""Importing this module fails, and says why, if the verl that is installed is of a version that we do not know.

Modules that need verl's v1 trainer import it before that: what is missing in another verl would only be a symptom.
"""

from dataflex_events.adapters.verl.contract import require_version

require_version()
