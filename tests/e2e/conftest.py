"""Runs that several files look at: each is made once."""

from __future__ import annotations

import pytest
from droplab import Runs
from labrun import PADDED, Run, run_verl
from mixrun import CUT, ENDLESS, SAVED, run_and_listen
from ways import Story, run_ways, stories


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Five steps of verl's own trainer, without a block."""
    folder = tmp_path_factory.mktemp("plain")
    return run_verl(folder, *PADDED, "trainer.v1.trainer_mode=sync", steps=5, probe=True).succeeded()


ALL_ONE = {
    "handlers": ["weighing:all_one", {"path": "weighing:Raises", "params": {"at": 2}}],
    "on_error": "detach",
}
EFFECTIVE = {
    "policies": [
        {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}},
        {
            "mechanism": "reweight",
            "scorer": {"name": "advantage_magnitude"},
            "actuator": {"name": "softmax", "params": {"temperature": 0.5}},
        },
        {
            "mechanism": "select",
            "scorer": {"name": "token_entropy"},
            "actuator": {"name": "top_entropy_tokens"},
            "apply": "mask",
        },
    ],
    "handlers": ["dropkit:Watch", "weighing:by_token"],
}


@pytest.fixture(scope="session")
def changes_nothing(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same steps with blocks that must not change anything, up to the last step.

    Steps 1 to 3 have weights that are all 1; in step 2 a handler proposes others, breaks down, and is detached. Step 4
    has policies and handlers that would change a lot, in shadow; in step 5 the same ones are applied.
    """
    schedule = [{"dataflex": block} for block in [ALL_ONE] * 3 + [{**EFFECTIVE, "shadow": True}, EFFECTIVE]]
    mode = ["trainer.v1.trainer_mode=dataflex_mix_sync", "+dataflex.handlers=[weighing:all_one]"]
    folder = tmp_path_factory.mktemp("changes_nothing")
    return run_verl(folder, *PADDED, *mode, steps=5, probe=True, schedule=schedule).succeeded()


@pytest.fixture(scope="session")
def drop_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Makes runs that drop rows."""
    return Runs(tmp_path_factory.mktemp("drop"))


@pytest.fixture(scope="session")
def ways_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All ways to apply a policy, one step each."""
    return run_ways(tmp_path_factory.mktemp("ways")).succeeded()


@pytest.fixture(scope="session")
def ways_steps(ways_run: Run) -> dict[str, Story]:
    """Its steps, by the name of the way."""
    return stories(ways_run)


@pytest.fixture
def step(request: pytest.FixtureRequest, ways_steps: dict[str, Story]) -> Story:
    """The step of the way that a test asks for with `wayscheck.ways`."""
    return ways_steps[request.param]


Heard = tuple[Run, set[tuple[str, str]]]


@pytest.fixture(scope="session")
def straight_and_heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    folder = tmp_path_factory.mktemp("straight")
    return run_and_listen(folder, folder / "checkpoints", steps=ENDLESS)


@pytest.fixture(scope="session")
def killed_and_heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    folder = tmp_path_factory.mktemp("killed")
    return run_and_listen(folder, folder / "checkpoints", kill=SAVED + 1)


@pytest.fixture(scope="session")
def straight(straight_and_heard: Heard) -> Run:
    """Eight steps in one go, a ninth that ignores the proportions, and a tenth that is interrupted while it refills."""
    run = straight_and_heard[0]
    assert len(run.metrics) == CUT, run.log[-5000:]
    return run


@pytest.fixture(scope="session")
def killed(killed_and_heard: Heard) -> Run:
    """The trainer is killed when it draws for step 5, after the checkpoint of step 4."""
    return killed_and_heard[0]


@pytest.fixture(scope="session")
def resumed(tmp_path_factory: pytest.TempPathFactory, killed: Run) -> Run:
    """Goes on from there."""
    return run_and_listen(tmp_path_factory.mktemp("resumed"), killed.folder / "checkpoints")[0].succeeded()
