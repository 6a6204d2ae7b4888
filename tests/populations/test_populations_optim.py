import pytest
import torch

from asym.populations import optim

STEPS = 6
TORCH = {
    "sgd": lambda p, lr, wd: torch.optim.SGD([p], lr=lr, weight_decay=wd),
    "momentum": lambda p, lr, wd: torch.optim.SGD([p], lr=lr, weight_decay=wd, momentum=0.9),
    "rmsprop": lambda p, lr, wd: torch.optim.RMSprop([p], lr=lr, weight_decay=wd),
    "adam": lambda p, lr, wd: torch.optim.Adam([p], lr=lr, weight_decay=wd),
    "adamw": lambda p, lr, wd: torch.optim.AdamW([p], lr=lr, weight_decay=wd),
}


def _setup():
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    grads = [torch.randn(3, 7, generator=generator, dtype=torch.float64) for _ in range(STEPS)]
    lr = torch.tensor([[0.1], [0.01], [0.003]], dtype=torch.float64)
    decay = torch.tensor([[0.0], [0.1], [0.5]], dtype=torch.float64)
    return theta, grads, lr, decay


def _run(name, theta, grads, lr, decay):
    theta = theta.clone()
    state = optim.init_state(name, theta)
    for step, grad in enumerate(grads):
        optim.update_(name, theta, grad.clone(), state, step + 1, lr, decay)
    return theta


@pytest.mark.parametrize("name", list(TORCH))
def test_each_row_follows_torch(name):
    theta, grads, lr, decay = _setup()
    ours = _run(name, theta, grads, lr, decay)
    for row in range(3):
        p = torch.nn.Parameter(theta[row].clone())
        optimizer = TORCH[name](p, lr[row].item(), decay[row].item())
        for grad in grads:
            p.grad = grad[row].clone()
            optimizer.step()
        torch.testing.assert_close(ours[row], p.data, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", list(TORCH))
def test_no_decay_is_a_decay_of_zero(name):
    theta, grads, lr, _ = _setup()
    assert torch.equal(_run(name, theta, grads, lr, None), _run(name, theta, grads, lr, torch.zeros_like(lr)))


@pytest.mark.parametrize("name", list(TORCH))
def test_blocks_change_nothing(name, monkeypatch):
    theta, grads, lr, decay = _setup()
    whole = _run(name, theta, grads, lr, decay)
    monkeypatch.setattr(optim, "BLOCK", 6)  # two columns of three rows
    assert torch.equal(whole, _run(name, theta, grads, lr, decay))


def test_slots_are_those_that_the_update_uses():
    assert set(optim.SLOTS) == set(TORCH)
    assert optim.init_state("sgd", torch.ones(2, 3)) == {}
    assert set(optim.init_state("adamw", torch.ones(2, 3))) == {"mean", "square"}
