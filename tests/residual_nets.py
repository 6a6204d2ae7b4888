"""Small residual networks, stacks of them, and their functions."""

import functools

import torch
from torch import nn

from asym.metanets import Residual, Stack, fold_batch_norms, residual_of
from asym.models import build
from asym.seeds import torch_generator

SHAPE = (1, 8, 8)


def resnet8(norm="group", width=0.125):
    return build("resnet8", input_shape=SHAPE, classes=3, width=width, norm=norm)


class Mixed(nn.Module):
    """A tanh stream with norms, a ReLU stream that is read without its ReLU too, a GELU layer behind a norm, biases."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.GroupNorm(1, 4)
        self.a = nn.Conv2d(4, 3, 3, padding=1)
        self.b, self.b_norm = nn.Conv2d(3, 4, 1, bias=False), nn.GroupNorm(1, 4)
        self.c = nn.Conv2d(4, 5, 2)
        self.d = nn.Conv2d(5, 5, 1)
        self.e, self.e_norm = nn.Conv2d(5, 2, 1, bias=False), nn.GroupNorm(1, 2)
        self.head = nn.Linear(18, 3)

    def forward(self, x):
        x = torch.tanh(self.stem_norm(self.stem(x)))
        x = torch.tanh(self.b_norm(self.b(torch.relu(self.a(x)))) + x)
        c = self.c(x)
        x = torch.relu(c) + c
        x = torch.relu(x + self.d(torch.relu(c)))
        x = nn.functional.gelu(self.e_norm(self.e(x)))
        return self.head(nn.functional.avg_pool2d(x, 2).flatten(1))


class Folded(nn.Module):
    """A ResNet-8 whose convolutions have the biases that BatchNorm left, under the names of its shifts."""

    def __init__(self):
        super().__init__()
        self.net = resnet8("none")
        for module in self.net.modules():
            if isinstance(module, nn.Conv2d):
                module.bias = nn.Parameter(torch.zeros(module.out_channels))

    def forward(self, x):
        return self.net(x)


NETS = ("resnet8", "folded", "plain", "mixed")


@functools.cache
def batch_network() -> Residual:
    return residual_of(resnet8("batch"), torch.zeros(2, *SHAPE))


@functools.cache
def network(name: str) -> Residual:
    if name == "folded":
        batch = batch_network()
        zeros = {key: torch.ones(1, *shape) for key, shape in batch.shapes.items()}
        return fold_batch_norms(batch, zeros)[0]
    modules = {"resnet8": resnet8, "plain": lambda: resnet8("none"), "mixed": Mixed}
    return residual_of(modules[name](), torch.zeros(2, *SHAPE))


@functools.cache
def module(name: str) -> nn.Module:
    return {"resnet8": resnet8, "plain": lambda: resnet8("none"), "mixed": Mixed, "folded": Folded}[name]().double()


def function(name: str, tensors: dict[str, torch.Tensor], index: int, x: torch.Tensor) -> torch.Tensor:
    """The output of one network of a stack."""
    own = {key: t[index] for key, t in tensors.items()}
    if name == "folded":
        biases = {w.layer.bias: w.layer.weight.replace("weight", "bias") for _, w in network(name).writes}
        own = {"net." + biases.get(key, key): t for key, t in own.items()}
    return torch.func.functional_call(module(name), own, (x,))


def random_tensors(shapes: dict[str, tuple[int, ...]], n: int, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch_generator(seed, "test", "residual")
    return {
        name: torch.rand(n, *shape, generator=generator, dtype=torch.float64) + 0.2
        if name.endswith("running_var")
        else torch.randn(n, *shape, generator=generator, dtype=torch.float64) / 2
        for name, shape in shapes.items()
    }


def random_stack(name: str, n: int = 6, seed: int = 0, dtype=torch.float64) -> Stack:
    """Random networks; the second has a dead channel in its first stream, the third a zero kernel and a zero layer."""
    residual = network(name)
    tensors = random_tensors(residual.shapes, n, seed)
    for k, write in residual.writes:
        if residual.nodes[k].stream == residual.nodes[1].stream:
            for key in (write.gain, write.shift, write.layer.bias, None if write.gain else write.layer.weight):
                if key:
                    tensors[key][1, 0] = 0
    tensors[residual.layers[1].weight][2, 0, 0] = 0
    tensors[residual.layers[2].weight][2] = 0
    return Stack(residual, {key: t.to(dtype) for key, t in tensors.items()})
