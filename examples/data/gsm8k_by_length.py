#!/usr/bin/env python
"""Split verl's GSM8K files into two domains, by the length of the question.

A new column `domain` says `gsm8k_short` or `gsm8k_long`: up to the median length of the training questions, or longer.
The threshold is the same for the test questions. All other columns stay, `data_source` among them, by which verl finds
the reward function.

    examples/data/gsm8k_by_length.py ~/data/gsm8k ~/data/gsm8k_by_length

SOURCE is the folder with train.parquet and test.parquet as verl's examples/data_preprocess/gsm8k.py writes them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

FILES = ("train.parquet", "test.parquet")
DOMAIN = "domain"


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder with train.parquet and test.parquet")
    parser.add_argument("target", type=Path, help="folder for the new files of the same names; made if needed")
    options = parser.parse_args(arguments)
    try:
        told = split(options.source, options.target)
    except (OSError, ValueError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print("\n".join(told))


def split(source: Path, target: Path) -> list[str]:
    """Write the files with their domains.

    Returns:
        A sentence for each file.

    Raises:
        ValueError: The source is not such a folder, or the target is the source.
        OSError: A file cannot be read or written.
    """
    if not source.is_dir():
        raise ValueError(f"there is no folder {source}")
    if target.resolve() == source.resolve():
        raise ValueError(f"the target is the source, {source}: its files would be overwritten")
    tables = {name: read(source / name) for name in FILES}
    lengths = {name: question_lengths(table) for name, table in tables.items()}
    threshold = median(lengths["train.parquet"])
    target.mkdir(parents=True, exist_ok=True)
    told = []
    for name, table in tables.items():
        domains = ["gsm8k_short" if length <= threshold else "gsm8k_long" for length in lengths[name]]
        # Without the schema's metadata: there `datasets` keeps a list of the columns, in which the new one is missing.
        pq.write_table(table.append_column(DOMAIN, pa.array(domains)).replace_schema_metadata(None), target / name)
        short = domains.count("gsm8k_short")
        told.append(f"{target / name}: {short} gsm8k_short, {len(domains) - short} gsm8k_long")
    return told


def read(file: Path) -> pa.Table:
    """Read one of verl's files.

    Raises:
        ValueError: It is not there, not Parquet, empty, or does not have the right columns.
    """
    if not file.is_file():
        raise ValueError(f"there is no file {file}; verl's examples/data_preprocess/gsm8k.py writes it")
    try:
        table = pq.read_table(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} is not a Parquet file: {error}") from error
    missing = [name for name in ("data_source", "prompt") if name not in table.column_names]
    if missing:
        columns = ", ".join(table.column_names)
        raise ValueError(f"{file} has no column {' and no column '.join(missing)} (it has: {columns})")
    if not pa.types.is_list(table.schema.field("prompt").type):
        raise ValueError(f"{file}: the column prompt does not hold lists of messages")
    if DOMAIN in table.column_names:
        raise ValueError(f"{file} has a column {DOMAIN} already")
    if not len(table):
        raise ValueError(f"{file} has no rows")
    return table


def question_lengths(table: pa.Table) -> list[int]:
    """Characters of each prompt: the question, and an instruction that is the same in all of them."""
    return [sum(len(message["content"]) for message in prompt) for prompt in table["prompt"].to_pylist()]


if __name__ == "__main__":
    main()
