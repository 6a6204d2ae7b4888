"""Small networks that are chains, and stacks of them."""

import torch
from torch import nn

from asym.metanets import Chain, Stack, accumulate, chain_of
from asym.models import build
from asym.seeds import torch_generator

SHAPE = (1, 8, 8)


def small_cnn(activation="relu", width=0.25):
    return build("small-cnn", input_shape=SHAPE, classes=3, width=width, activation=activation)


class Siren(nn.Module):
    """sin(30 (W x + b)), sin(30 (W x + b)), linear, + 0.5."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 5), nn.Linear(5, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.c(torch.sin(30.0 * self.b(torch.sin(30.0 * self.a(x))))) + 0.5


class Mixed(nn.Sequential):
    """ReLU, tanh and GELU layers in one network; kernels of different sizes; a flattened feature map."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 4, 3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(4, 3, 2, bias=False),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(3 * 4, 5),
            nn.GELU(),
            nn.Linear(5, 4),
            nn.ReLU(),
            nn.Linear(4, 3),
        )


def nets() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Name to network and the shape of its inputs."""
    mlp = build("mlp", input_shape=SHAPE, classes=3, width=6 / 512, norm="none", activation="tanh")
    return {
        "relu cnn": (small_cnn(), SHAPE),
        "tanh cnn": (small_cnn("tanh"), SHAPE),
        "tanh mlp": (mlp, SHAPE),
        "siren": (Siren(), (2,)),
        "mixed": (Mixed(), SHAPE),
    }


def chain(name: str) -> Chain:
    network, shape = nets()[name]
    return chain_of(network, torch.zeros(2, *shape))


def random_stack(chain: Chain, n: int = 6, seed: int = 0, dtype=torch.float64, **options) -> Stack:
    """Random networks; the second has a dead unit in its first layer, the third a zero kernel, the fourth a zero."""
    generator = torch_generator(seed, "test", "stack")
    tensors = {
        name: torch.randn(n, *shape, generator=generator, dtype=torch.float64) / 3
        for name, shape in chain.shapes.items()
    }
    first, second = chain.layers[:2]
    if n > 3:
        tensors[first.weight][1, 0] = 0
        if first.bias:
            tensors[first.bias][1, 0] = 0
        tensors[second.weight][2, 0, 0] = 0
        tensors[second.weight][3].view(-1)[1] = 0
    return Stack(chain, {name: tensor.to(dtype) for name, tensor in tensors.items()}, **options)


def run(network: nn.Module, tensors: dict[str, torch.Tensor], index: int, x: torch.Tensor) -> torch.Tensor:
    """The output of one network of a stack."""
    return torch.func.functional_call(network, {name: t[index] for name, t in tensors.items()}, (x,))


def train(model, stack, steps=3):
    """A reader after a few steps towards random targets, in evaluation mode."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    targets = torch.rand(len(stack), model.out, generator=torch_generator(0, "targets"), dtype=torch.float64)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        accumulate(model, stack, targets, torch.nn.functional.mse_loss)
        optimizer.step()
    return model.eval()
