"""Tasks for workers of `test_populations_launch.py`: a module of its own, which they load faster than that one."""

import os
import signal
import time
from pathlib import Path

import torch

from asym.data import load
from asym.populations import tick, train_or_load
from asym.store import CorruptRun, Store

EPOCHS = 3


def train(runs, chunk, plan, marker):
    """Train a chunk; the first process that comes to the end of its second epoch is killed there."""
    epochs = 0

    def epoch(networks):
        nonlocal epochs
        epochs += 1
        tick(networks)
        if marker is not None and epochs == 2 and not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)

    data = load("digits", train_size=100)
    return train_or_load(Store(runs), chunk, data, plan, on_epoch=epoch).theta, torch.get_num_threads()


def die(marker):
    """End this process, each time."""
    with open(marker, "a") as stream:
        stream.write(".")
    os._exit(3)


def corrupt(path):
    raise CorruptRun(path, "was altered")


class Odd(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a}{b}")


def odd():
    raise Odd(1, 2)


def family(folder, name, other):
    """Who does this; ends when the other one is at it too."""
    (Path(folder) / name).touch()
    deadline = time.monotonic() + 120
    while not (Path(folder) / other).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return os.getpid(), os.getppid()
