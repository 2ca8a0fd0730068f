from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dataflex_events.adapters.verl.cpu import lab as lab_module
from dataflex_events.adapters.verl.cpu import lab_contents
from dataflex_events.adapters.verl.cpu.lab import Lab, LabSettings, build_lab, default_root
from dataflex_events.adapters.verl.cpu.overrides import lab_environment, lab_overrides
from dataflex_events.adapters.verl.cpu.tasks import DOMAINS

SETTINGS = LabSettings(
    train_per_domain=6,
    held_out_per_domain=3,
    hidden_size=32,
    layers=1,
    clean_steps=2,
    noisy_steps=1,
    warm_up_batch=8,
    measured_samples=1,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return build_lab(SETTINGS, tmp_path_factory.mktemp("labs"))


def test_data_has_the_columns_that_verl_reads(made: Lab) -> None:
    for path, split, count in ((made.train, "train", 6), (made.held_out, "held_out", 3)):
        rows = pq.read_table(path).to_pylist()
        assert [row["domain"] for row in rows] == [domain for domain in DOMAINS for _ in range(count)]
        assert [row["extra_info"] for row in rows] == [{"index": n, "split": split} for n in range(4 * count)]
        for row in rows:
            assert row["data_source"] == f"lab/{row['domain']}"
            assert [message["role"] for message in row["prompt"]] == ["user"]
            assert row["reward_model"]["style"] == "rule"


def test_nothing_that_is_held_out_is_trained_on(made: Lab) -> None:
    texts = [{row["prompt"][0]["content"] for row in pq.read_table(p).to_pylist()} for p in (made.train, made.held_out)]
    assert not texts[0] & texts[1]


def test_model_and_tokenizer_load(made: Lab) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(made.model, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(made.model, local_files_only=True)
    assert model.config.model_type == "qwen2"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert str(model.dtype) == "torch.float32"


def test_the_reward_file_works_by_itself(made: Lab) -> None:
    space: dict[str, object] = {}
    exec(made.reward.read_text(), space)
    assert space["compute_score"]("lab/sort", "12", "12") == {"score": 1.0, "acc": 1.0}  # type: ignore[operator]


def test_solve_rates_are_kept_and_the_lab_is_built_once(made: Lab) -> None:
    said: list[str] = []
    again = build_lab(SETTINGS, made.root.parent, said.append)
    assert again == made
    assert said == []
    assert set(made.solve_rates) == set(DOMAINS)
    assert json.loads((made.root / "lab.json").read_text())["settings"]["clean_steps"] == 2


def test_the_same_settings_make_the_same_lab(made: Lab, tmp_path: Path) -> None:
    twin = build_lab(SETTINGS, tmp_path, lambda _: None)
    for name in ("train.parquet", "held_out.parquet", "model/model.safetensors", "lab.json"):
        assert (twin.root / name).read_bytes() == (made.root / name).read_bytes(), name


def test_other_settings_make_another_lab() -> None:
    assert SETTINGS.key != LabSettings().key != LabSettings.tiny().key


def test_a_failed_build_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no more disk")

    monkeypatch.setattr(lab_contents, "write_lab", fail)
    with pytest.raises(RuntimeError, match="no more disk"):
        build_lab(SETTINGS, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_of_two_builders_the_first_one_wins(made: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = lab_contents.write_lab

    def overtaken(settings: LabSettings, folder: Path, say: object) -> None:
        monkeypatch.setattr(lab_contents, "write_lab", build)
        build_lab(settings, tmp_path, lambda _: None)  # another process
        (folder / "late").touch()

    monkeypatch.setattr(lab_contents, "write_lab", overtaken)
    late = build_lab(SETTINGS, tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir()] == [late.root.name]
    assert not (late.root / "late").exists()
    assert late.solve_rates == made.solve_rates


def test_labs_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "dataflex-verl"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".cache" / "dataflex-verl"


@pytest.mark.verl
def test_verl_accepts_the_overrides(made: Lab) -> None:
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[*lab_overrides(made, ranks=2, seed=7), "data.train_batch_size=4"])
    assert config.trainer.n_gpus_per_node == config.ray_kwargs.ray_init.num_gpus == 2
    assert config.data.seed == config.actor_rollout_ref.rollout.seed == 7
    assert config.data.train_batch_size == 4, "later overrides win"
    assert config.data.train_files == str(made.train)


def test_overrides_survive_a_shell_and_the_environment_is_plain(
    made: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_module, "LabSettings", lambda: SETTINGS)
    lab_module.main(["--root", str(made.root.parent), "--print-overrides"])
    assert capsys.readouterr().out.split() == lab_overrides(made)
    lab_module.main(["--print-environment"])
    assert dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines()) == lab_environment()
