"""Summaries of the SAFFU study's tables, and what is printed at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from studies.tables import interval_text, render, summarise

SUMMARIES = {
    "connectivity": ("barrier_loss_mid", "barrier_loss_max", "loss", "loss_mid", "train_barrier_loss_mid",
                     "train_barrier_loss_max", "distance", "identity_share", "cka"),
    "quality": ("test_loss", "val_loss", "perplexity", "bits_per_character", "start_loss", "solve_s", "train_s",
                "search_s", "steps_to_unigram", "steps_to_bigram", "steps_to_trigram", "seconds_to_unigram",
                "seconds_to_bigram", "seconds_to_trigram"),
    "merging": ("loss_average", "loss_average_matched", "loss_parts", "loss_best_part", "loss_union"),
    "cost": ("step_ms", "tokens_per_s", "solve_s", "solve_in_steps", "inference_us", "inference_uncached_us", "flops",
             "flops_uncached", "peak_mb", "params"),
}  # fmt: skip
SUMMARIES["grid"] = ("start_loss", "test_loss", "val_loss", "perplexity", "solve_s", "train_s")
SUMMARIES["architecture"] = SUMMARIES["connectivity"]
CONSTANT = ("preset", "dataset", "vocabulary", "size", "train_tokens", "params", "lr", "steps", "priming")
"""Columns that a summary carries along from the first row of each group."""


def summary(rows: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """Mean, 95 % interval over repeats and n of each measure; `diverged` counts repeats that did."""
    rows = rows.copy()
    if {"loss_a", "loss_b"} <= set(rows):
        rows["loss"] = rows[["loss_a", "loss_b"]].mean(axis=1, skipna=False)
        rows["diverged"] = ((rows["diverged_a"] > 0) | (rows["diverged_b"] > 0)).astype(int)
    values = [value for value in values if value in rows]
    out = summarise(rows, by, values)
    kept = [column for column in CONSTANT if column in rows and column not in (*by, *values)]
    groups = rows.groupby(list(by), sort=False, dropna=False)
    first = groups[kept].first().reset_index() if kept else None
    if first is not None:
        out = out.merge(first, on=list(by))
    if "diverged" in rows:
        lost = groups["diverged"].apply(lambda d: int((d > 0).sum())).rename("diverged").reset_index()
        out = out.merge(lost, on=list(by))
    return out


def summary_text(config: Any, prepared: Any, tables: dict[str, pd.DataFrame]) -> str:
    """The tables of the terminal, one for each part."""
    from studies.saffu import TABLES

    texts = []
    for part, rows in tables.items():
        found = summary(rows, TABLES[f"saffu_{part}_summary"], SUMMARIES[part])
        shown = _SHOWN[part]
        lines = [
            [_cell(row, key) for key in shown[0]] + [_value(row, value, digits) for value, digits in shown[1]]
            for row in found.to_dict("records")
        ]
        texts.append(f"{part}\n" + render([*shown[0], *(value for value, _ in shown[1])], lines))
    return "\n\n".join(texts)


_LINE = (
    ("start", "model", "data", "embedding", "steps", "lr", "alignment"),
    (("loss", 3), ("barrier_loss_mid", 3), ("barrier_loss_max", 3), ("identity_share", 2), ("distance", 2)),
)
_SHOWN = {
    "connectivity": _LINE,
    "architecture": _LINE,
    "quality": (
        ("arm", "fraction", "control"),
        (("perplexity", 1), ("test_loss", 3), ("bits_per_character", 3), ("steps_to_bigram", 0),
         ("seconds_to_bigram", 1)),
    ),
    "merging": (
        ("start", "k"),
        (("loss_average", 3), ("loss_average_matched", 3), ("loss_parts", 3), ("loss_best_part", 3), ("loss_union", 3)),
    ),
    "cost": (
        ("arm",),
        (("params", 0), ("step_ms", 2), ("solve_in_steps", 1), ("flops", 0), ("inference_us", 1),
         ("inference_uncached_us", 1), ("peak_mb", 0)),
    ),
    "grid": (("design", "arm"), (("start_loss", 3), ("test_loss", 3), ("perplexity", 1), ("solve_s", 2))),
}  # fmt: skip


def _cell(row: dict, key: str) -> str:
    value = row[key]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value(row: dict, value: str, digits: int) -> str:
    if value not in row:
        return "–"
    return interval_text(row[value], row[f"{value}_low"], row[f"{value}_high"], digits)
