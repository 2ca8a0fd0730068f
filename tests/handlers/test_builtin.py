"""What holds for every built-in component."""

import ast
import inspect
from pathlib import Path

import pytest

from dataflex_events import registry
from dataflex_events.handlers import builtin
from dataflex_events.parameters import parameters

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = [
    pytest.param(entry, id=f"{kind} {name}")
    for kind in registry.KINDS
    for name, entry in registry.names(kind).items()
    if name == entry.name and entry.component.__module__.startswith("dataflex_events.handlers.")
]


def test_every_file_is_imported_by_builtin():
    files = {path.stem for path in (ROOT / "handlers").glob("*/*.py")}
    assert files == set(builtin.__all__)


@pytest.mark.parametrize("entry", COMPONENTS)
def test_a_component_stands_in_a_file_of_its_name(entry):
    assert entry.component.__module__.rsplit(".", 1)[1] == entry.name


@pytest.mark.parametrize("entry", COMPONENTS)
def test_every_parameter_is_documented(entry):
    attributes = inspect.getdoc(entry.component).partition("Attributes:")[2]
    assert all(f"    {name}: " in attributes for name in parameters(entry.component))


def test_defaults_are_those_of_the_paper_or_its_authors():
    # Changing one changes the runs of everybody who does not set it: that belongs into the change log.
    defaults = {param.values[0].name: dict(parameters(param.values[0].component)) for param in COMPONENTS}
    assert defaults == {
        "reward": {},
        "group_solve_rate": {"success_threshold": 0.5, "signal": "reward"},
        "group_reward_std": {"tolerance": 1e-6},
        "group_advantage": {"norm_by_std": None, "abs": True},
        "advantage_magnitude": {"agg": "mean"},
        "token_prob": {},
        "token_entropy": {},
        "response_length": {"valid_only": True},
        "softmax": {"temperature": 1.0},
        "difficulty_band": {"low_q": 0.25, "high_q": 0.75, "focus_weight": 2.0},
        "advantage_reweight": {"alpha": 0.2},
        "per_advantage": {"alpha": 0.5},
        "threshold_band": {"low": 0.0, "high": 1.0, "inclusive": False},
        "topk_fraction": {"fraction": 0.5, "largest": True},
        "gfpo": {
            "k": ...,
            "metric": "efficiency",
            "adaptive": False,
            "adaptive_k": (8, 8, 6, 4),
            "warmup_steps": 10,
            "history": 4096,
            "advantages": "subset",
        },
        "max_variance": {"keep_fraction": 0.5, "advantages": "subset"},
        "top_entropy_tokens": {"fraction": 0.2},
        "static": {"proportions": None},
        "reward_gap": {"temperature": 1.0, "floor": 0.05, "window": 50},
        "dump_ucb": {"temperature": 0.1, "c": 1.0, "window": 300, "floor": 0.0},
        "tscl": {
            "variant": "window",
            "window": 10,
            "alpha": 0.1,
            "temperature": 0.1,
            "signed": False,
            "floor": 0.05,
        },
        "sec": {"alpha": 0.5, "temperature": 0.4, "floor": 0.0},
        "exp3": {"alpha": 0.9},
        "greso": {"p_init": 0.5, "step": 0.01, "targets": (0.0833, 0.1667), "explore_min": 0.01},
        "mopps": {"target": 0.5, "decay": 1.0, "candidates": 8, "explore": 0.01},
        "learnability": {"explore": 0.1},
        "difficulty_pools": {"easy": 0.75, "hard": 0.25, "weight_easy": 0.2, "weight_hard": 0.2, "explore": 0.01},
        "adarft": {"column": ..., "target": 0.5, "step": 50.0, "sensitivity": 2.0, "start": 0.0},
        "tensorboard": {"histograms_every": 10},
    }


def test_what_is_declared_beside_the_parameters():
    declared = {
        label: {name: getattr(entry.component, name) for name in wanted}
        for kind, wanted in {
            "scorer": ["per", "needs_groups"],
            "reweighter": ["normalize"],
            "selector": ["scope", "normalize"],
            "mixer": ["default_scorer"],
            "gate": ["needs_groups"],
        }.items()
        for label, entry in registry.names(kind).items()
        if entry.component.__module__.startswith("dataflex_events.handlers.")
    }
    assert {label: values for label, values in declared.items() if "per" in values} == {
        "reward": {"per": "row", "needs_groups": False},
        "reward_difficulty": {"per": "row", "needs_groups": False},
        "group_solve_rate": {"per": "group", "needs_groups": True},
        "group_reward_std": {"per": "group", "needs_groups": True},
        "group_advantage": {"per": "row", "needs_groups": True},
        "advantage_magnitude": {"per": "row", "needs_groups": False},
        "response_length": {"per": "row", "needs_groups": False},
        "token_prob": {"per": "token", "needs_groups": False},
        "token_entropy": {"per": "token", "needs_groups": False},
    }
    assert {label: values["normalize"] for label, values in declared.items() if "normalize" in values} == {
        "softmax": "auto",
        "difficulty_band": "auto",
        "advantage_reweight": "none",
        "per_advantage": "auto",
        "threshold_band": "auto",
        "difficulty_filtering": "auto",
        "topk_fraction": "auto",
        "gfpo": "auto",
        "max_variance": "auto",
        "pods": "auto",
        "pods_maxvar": "auto",
        "top_entropy_tokens": "none",
    }
    assert {label: values["scope"] for label, values in declared.items() if "scope" in values} == {
        "threshold_band": "score",
        "difficulty_filtering": "score",
        "topk_fraction": "batch",
        "gfpo": "within_group",
        "max_variance": "within_group",
        "pods": "within_group",
        "pods_maxvar": "within_group",
        "top_entropy_tokens": "token",
    }
    assert {label: values["default_scorer"] for label, values in declared.items() if "default_scorer" in values} == {
        "static": "reward",
        "reward_gap": "reward",
        "tscl": "reward",
        "dump_ucb": "group_advantage",
        "sec": "group_advantage",
        "exp3": "group_advantage",
    }
    gates = {label: values["needs_groups"] for label, values in declared.items() if label in registry.names("gate")}
    assert gates == {
        "greso": True,
        "mopps": True,
        "learnability": True,
        "difficulty_pools": True,
        "adarft": False,
    }


LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@pytest.mark.parametrize("entry", COMPONENTS)
def test_a_component_is_short_and_has_no_loop(entry):
    # Batches have thousands of rows and millions of tokens: what is done to each is done in segments.py, vectorised.
    source = Path(inspect.getfile(entry.component)).read_text()
    assert len(source.splitlines()) < 100
    assert [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, LOOPS)] == []
