"""The script that splits GSM8K by length, on made-up files of its shape, and its use in `mix.sh` on a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "data" / "gsm8k_by_length.py"

# Lengths of the questions. The median of the training questions is 12.5; that of the test questions is 30.
LENGTHS = {"train": [10, 20, 5, 15, 30, 6], "test": [12, 13, 30, 40, 50]}
DOMAINS = {
    "train": ["gsm8k_short", "gsm8k_long", "gsm8k_short", "gsm8k_long", "gsm8k_long", "gsm8k_short"],
    "test": ["gsm8k_short", "gsm8k_long", "gsm8k_long", "gsm8k_long", "gsm8k_long"],
}
INSTRUCTION = ' Let\'s think step by step and output the final answer after "####".'
COLUMNS = ["data_source", "prompt", "ability", "reward_model", "extra_info"]


def rows(split: str) -> list[dict[str, Any]]:
    """As verl writes them."""
    return [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": "é" * length + INSTRUCTION}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(number)},
            "extra_info": {"split": split, "index": number, "answer": f"#### {number}", "question": "é" * length},
        }
        for number, length in enumerate(LENGTHS[split])
    ]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "gsm8k"
    folder.mkdir()
    for split in LENGTHS:
        pq.write_table(pa.Table.from_pylist(rows(split)), folder / f"{split}.parquet")
    return folder


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gsm8k_by_length", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: object) -> None:
    load_script().main([*map(str, arguments)])


def mistake(*arguments: object) -> str:
    """What the script says when it fails, in a line."""
    with pytest.raises(SystemExit) as stopped:
        run(*arguments)
    message = str(stopped.value.code)
    assert "\n" not in message
    return message


def test_each_question_gets_its_domain_and_keeps_all_else(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "folder"
    run(source, target)
    assert capsys.readouterr().out.splitlines() == [
        f"{target}/train.parquet: 3 gsm8k_short, 3 gsm8k_long",
        f"{target}/test.parquet: 1 gsm8k_short, 4 gsm8k_long",
    ]
    for split in LENGTHS:
        table = pq.read_table(target / f"{split}.parquet")
        assert table.column_names == [*COLUMNS, "domain"]
        assert table["domain"].to_pylist() == DOMAINS[split]
        assert table.drop_columns(["domain"]).to_pylist() == rows(split)


def test_a_length_that_is_the_median_is_short(tmp_path: Path) -> None:
    for split in LENGTHS:
        pq.write_table(pa.Table.from_pylist(rows(split)[:3]), tmp_path / f"{split}.parquet")
    run(tmp_path, tmp_path / "out")
    domains = pq.read_table(tmp_path / "out" / "train.parquet")["domain"].to_pylist()
    assert domains == ["gsm8k_short", "gsm8k_long", "gsm8k_short"], "of lengths 10, 20, 5"


def test_files_of_datasets_are_read_by_datasets_with_the_new_column(source: Path, tmp_path: Path) -> None:
    """verl writes and reads these files with `datasets`, which puts a list of the columns into them."""
    datasets = pytest.importorskip("datasets")
    for split in LENGTHS:
        datasets.Dataset.from_list(rows(split)).to_parquet(str(source / f"{split}.parquet"))
    run(source, tmp_path / "out")
    files = {split: str(tmp_path / "out" / f"{split}.parquet") for split in LENGTHS}
    read = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "cache"))
    for split in LENGTHS:
        assert read[split]["domain"][:] == DOMAINS[split]
        assert read[split]["prompt"][0] == rows(split)[0]["prompt"]


def test_mistakes_are_told_in_a_line(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert f"there is no folder {tmp_path}/nowhere" in mistake(tmp_path / "nowhere", out)
    assert "the target is the source" in mistake(source, source / ".." / source.name)
    (tmp_path / "file").touch()
    assert "File exists" in mistake(source, tmp_path / "file")
    train = source / "train.parquet"
    for broken, message in {
        "column": "has no column prompt (it has: data_source, ability, reward_model, extra_info)",
        "text": "the column prompt does not hold lists of messages",
        "again": "has a column domain already",
        "empty": "has no rows",
        "torn": "is not a Parquet file",
        "missing": f"there is no file {train}; verl's examples/data_preprocess/gsm8k.py writes it",
    }.items():
        table = pa.Table.from_pylist(rows("train"))
        if broken == "column":
            pq.write_table(table.drop_columns(["prompt"]), train)
        elif broken == "text":
            pq.write_table(table.set_column(1, "prompt", pa.array(["text"] * len(table))), train)
        elif broken == "again":
            pq.write_table(table.append_column("domain", pa.array(["x"] * len(table))), train)
        elif broken == "empty":
            pq.write_table(table.slice(0, 0), train)
        elif broken == "torn":
            train.write_bytes(train.read_bytes()[:-10])
        else:
            train.unlink()
        assert message in mistake(source, out)
    assert not out.exists(), "nothing is written before all is read"


def test_with_a_gpu_the_example_draws_from_the_two_domains(source: Path, tmp_path: Path) -> None:
    """On a machine whose GPU is pretended, and whose `python` only writes down how verl would be called."""
    tools = tmp_path / "tools"
    tools.mkdir()
    stand_ins = {
        "nvidia-smi": 'echo "GPU 0: pretended"',
        "python": f'[ "$1" = -m ] || exec "{sys.executable}" "$@"; printf "%s\\n" "$@" > "{tmp_path}/call"',
    }
    for name, script in stand_ins.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    out = tmp_path / "out"
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "OUT": str(out), "DATA": str(source)}
    done = subprocess.run(
        ["bash", EXAMPLES / "mix.sh", "data.seed=1"], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    call = (tmp_path / "call").read_text().splitlines()
    assert call[:2] == ["-m", "verl.trainer.main_ppo"] and call[-1] == "data.seed=1"
    given = dict(argument.split("=", 1) for argument in call if "=" in argument)  # of equal keys the last one wins
    assert given["data.train_files"] == f"{out}/data/train.parquet"
    assert given["data.val_files"] == f"{out}/data/test.parquet"
    assert pq.read_table(given["data.train_files"])["domain"].to_pylist() == DOMAINS["train"]
