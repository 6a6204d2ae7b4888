"""Many networks of one architecture, trained and held as one object."""

from asym.populations.evaluate import Evaluator, path, reestimate_running, subset
from asym.populations.launch import Launcher
from asym.populations.layout import Layout
from asym.populations.plan import Plan, forward_flop, make_plan
from asym.populations.population import RECIPE_VERSION, Architecture, Member, Population
from asym.populations.recipes import Recipe
from asym.populations.runs import (
    cached,
    chunks_of,
    load,
    plan_for,
    run_config,
    run_of,
    train_or_load,
    train_population,
)
from asym.populations.train import Trained, cross_entropy, train_chunk
from asym.populations.workers import WorkerLost, cpu_count, run_tasks, tick

__all__ = [
    "RECIPE_VERSION",
    "Architecture",
    "Evaluator",
    "Launcher",
    "Layout",
    "Member",
    "Plan",
    "Population",
    "Recipe",
    "Trained",
    "WorkerLost",
    "cached",
    "chunks_of",
    "cpu_count",
    "cross_entropy",
    "forward_flop",
    "load",
    "make_plan",
    "path",
    "plan_for",
    "reestimate_running",
    "run_config",
    "run_of",
    "run_tasks",
    "subset",
    "tick",
    "train_chunk",
    "train_or_load",
    "train_population",
]
