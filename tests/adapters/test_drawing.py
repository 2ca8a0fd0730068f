"""Our hooks around verl's draw, on a stand-in for its trainer that loads and fetches as verl does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from drawtrainer import DrawTrainer as Trainer
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from dataflex_events import ConfigError, VerificationError
from dataflex_events.adapters.verl.dataset import ROW_COLUMN

MIX: dict[str, Any] = {"mechanism": "mix", "actuator": {"name": "static", "params": {"proportions": [3, 1]}}}
TWO = ["a", "b"] * 10


@pytest.mark.parametrize("size", [None, 1, 2])
def test_what_is_drawn_has_the_proportions(size: int | None):
    trainer = Trainer(MIX, TWO, gen_batch_size=size)
    drawn = [trainer.draw() for _ in range(5)]
    assert [Counter(domains) for domains in drawn] == [Counter(a=3, b=1)] * 5


def test_a_refill_goes_on_where_the_batch_ended():
    trainer = Trainer(MIX, TWO, gen_batch_size=1)
    assert Counter(trainer.draw(2) + trainer.draw(2)) == Counter(a=3, b=1)


def test_rows_are_known_by_uid_and_travel_in_a_column():
    trainer = Trainer(MIX, TWO)
    trainer.global_steps = 1
    batch = trainer._next_train_batch()
    rows = [int(row) for row in batch[ROW_COLUMN]]
    assert [TWO[row] for row in rows] == [str(domain) for domain in batch["domain"]]
    assert trainer._rows == dict(zip(["uid0", "uid1", "uid2", "uid3"], rows, strict=True))


def test_rows_are_remembered_only_for_those_who_watch_groups():
    trainer = Trainer({"handlers": ["toys:reads_rows"]}, TWO)
    trainer.draw()
    assert ROW_COLUMN in trainer.train_dataset[0]
    assert trainer._rows == {}


def test_where_mixer_and_scorer_are_detached_the_data_decide():
    failing = {
        "mechanism": "mix",
        "actuator": {"name": "toys:Called", "params": {"raises": True}},
        "on_error": "detach",
    }
    trainer = Trainer(failing, TWO)
    trainer.draw()
    trainer._driver.bus.close()
    assert Counter(trainer.draw()) == Counter(a=2, b=2)


def test_workers_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture):
    trainer = Trainer(MIX, TWO, dataloader_num_workers=8)
    assert trainer.train_dataloader.num_workers == 0
    assert "data.dataloader_num_workers=8 is set to 0" in caplog.text


def test_other_rows_than_those_planned_stop_the_run():
    trainer = Trainer(MIX, TWO)
    trainer._sampler.planned.append(7)  # somebody else has drawn as well
    with pytest.raises(VerificationError, match=r"verl drew the rows \[7, .* were planned"):
        trainer.draw()


def test_data_smaller_than_a_batch():
    with pytest.raises(ConfigError, match=r"data.train_batch_size: is 4, and the data has 3 rows: verl"):
        Trainer(MIX, ["a", "b", "b"])


def test_as_many_rows_as_a_batch_and_a_domain_of_one_row():
    trainer = Trainer(MIX, ["a", "b", "b", "b"])
    assert [Counter(trainer.draw()) for _ in range(3)] == [Counter(a=3, b=1)] * 3


@pytest.mark.parametrize("block", [None, {**MIX, "shadow": True}, {"handlers": ["toys:watch_draws"]}])
def test_without_a_mix_that_is_applied_the_loader_draws_as_verls(block: Any):
    trainer = Trainer(block, TWO)
    assert type(trainer.train_dataloader) is StatefulDataLoader
    assert type(trainer.train_dataloader.sampler) is RandomSampler
    drawn = [domain for _ in range(5) for domain in trainer.draw()]
    assert Counter(drawn) == Counter(TWO), "an epoch"


def test_in_shadow_the_proportions_are_there_and_the_data_decides():
    trainer = Trainer({**MIX, "shadow": True}, TWO)
    trainer.draw()
    assert trainer._plan.mix is not None
    assert trainer._plan.mix.proportions.tolist() == [0.75, 0.25]


def test_all_that_is_wrong_with_the_data_at_once():
    with pytest.raises(ConfigError) as refused:
        Trainer({**MIX, "domains": ["a", "c"]}, TWO)
    assert len(refused.value.issues) == 2
