"""Imports every built-in component, so that each registers its name. Named by the package's own entry point."""

from dataflex_events.handlers.observers import tensorboard
from dataflex_events.handlers.reweighters import softmax
from dataflex_events.handlers.scorers import advantage_magnitude, group_solve_rate, reward
from dataflex_events.handlers.selectors import threshold_band

__all__ = ["advantage_magnitude", "group_solve_rate", "reward", "softmax", "tensorboard", "threshold_band"]
