import pytest
import torch
from torch import nn

from asym.models import build
from asym.populations import forward_flop, make_plan
from asym.populations.plan import STACK_CPU, keep_freed_memory, supports_bfloat16

CPU = torch.device("cpu")


def _net(arch, shape, **options):
    return build(arch, input_shape=shape, classes=10, **options)


def test_flop_by_hand():
    assert forward_flop(nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Linear(4, 2)), (1, 2, 3)) == 2 * (24 + 8)
    conv = nn.Conv2d(3, 5, 3, padding=1)
    assert forward_flop(conv, (3, 4, 4)) == 2 * 16 * 5 * 27


def test_small_work_is_stacked_and_large_work_is_not():
    assert make_plan(_net("small-cnn", (1, 8, 8)), (1, 8, 8), 64, CPU).chunk == STACK_CPU
    assert make_plan(_net("resnet20", (3, 32, 32)), (3, 32, 32), 128, CPU).chunk == 1
    assert make_plan(_net("resnet20", (1, 8, 8)), (1, 8, 8), 128, CPU).chunk == 1


def test_batch_norm_is_never_stacked():
    network = _net("resnet8", (1, 8, 8), norm="batch")
    assert make_plan(network, (1, 8, 8), 2, CPU).chunk == 1


def test_precision_follows_image_size_and_processor(monkeypatch):
    network = _net("resnet8", (3, 32, 32))
    monkeypatch.setattr("asym.populations.plan.supports_bfloat16", lambda device: True)
    assert make_plan(network, (3, 32, 32), 128, CPU).dtype == "bfloat16"
    assert make_plan(_net("resnet8", (1, 8, 8)), (1, 8, 8), 128, CPU).dtype == "float32"
    assert make_plan(_net("mlp", (1, 28, 28)), (1, 28, 28), 64, CPU).dtype == "float32"
    monkeypatch.setattr("asym.populations.plan.supports_bfloat16", lambda device: False)
    assert make_plan(network, (3, 32, 32), 128, CPU).dtype == "float32"


def test_the_plan_is_the_same_each_time():
    network = _net("mlp", (1, 8, 8))
    assert make_plan(network, (1, 8, 8), 64, CPU) == make_plan(network, (1, 8, 8), 64, CPU)
    assert network.training


def test_memory_setting_is_idempotent():
    assert keep_freed_memory() == keep_freed_memory()
    assert isinstance(supports_bfloat16(CPU), bool)
    assert supports_bfloat16(torch.device("meta")) is False


@pytest.mark.parametrize("training", [True, False])
def test_counting_leaves_the_mode_alone(training):
    network = _net("mlp", (1, 4, 4)).train(training)
    forward_flop(network, (1, 4, 4))
    assert network.training is training
