"""Fixed entries under `torch.compile` and data-parallel training, each in processes of its own."""

import socket
import subprocess
import sys

COMPILE = """
import copy, torch, warnings
import torch.nn.functional as F
from asym.nn import FiGLU, WAsymConv2d, WAsymLinear, check_fixed

torch.set_num_threads(1)
model = torch.nn.Sequential(
    WAsymConv2d(3, 8, 3, padding=1, n_fix=7, kappa=1.5, seed=0, name="conv"),
    FiGLU(8, scale=1.0, seed=0, name="act", channel_dim=1),
    torch.nn.Flatten(),
    WAsymLinear(200, 4, n_fix=50, kappa=2.0, seed=0, name="head"),
)
for backend in ("eager", "aot_eager"):
    torch._dynamo.reset()
    net = copy.deepcopy(model)
    before = [net[i].effective_weight.detach()[~net[i].mask].clone() for i in (0, 3)]
    fast = torch.compile(net, backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=0.1)
    x, y = torch.randn(8, 3, 5, 5), torch.randint(4, (8,))
    torch.testing.assert_close(fast(x), net(x))
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(fast(x), y).backward()
        optimizer.step()
    for i, old in zip((0, 3), before):
        assert torch.equal(net[i].effective_weight.detach()[~net[i].mask], old)
    assert check_fixed(net) == 2
    assert not torch.equal(net[0].weight, model[0].weight)
print("compiled")
"""


def test_torch_compile():
    """In a process of its own: the run-time type checker of the tests is in the way of the tracer."""
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "compiled", done.stderr[-2000:]


DDP = """
import sys, torch, torch.distributed as dist
import torch.nn.functional as F
from asym.nn import WAsymConv2d, WAsymLinear, check_fixed

rank, port = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(rank)
net = torch.nn.Sequential(
    WAsymConv2d(3, 8, 3, padding=1, n_fix=7, kappa=1.5, seed=0, name="conv"),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    WAsymLinear(200, 4, n_fix=50, kappa=2.0, seed=0, name="head"),
)
before = [net[i].effective_weight.detach()[~net[i].mask].clone() for i in (0, 3)]
parallel = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.AdamW(net.parameters(), 0.01, weight_decay=0.5)
for _ in range(3):
    optimizer.zero_grad()
    F.cross_entropy(parallel(torch.randn(8, 3, 5, 5)), torch.randint(4, (8,))).backward()
    optimizer.step()
for i, old in zip((0, 3), before):
    assert torch.equal(net[i].effective_weight.detach()[~net[i].mask], old)
assert check_fixed(net) == 2
weights = torch.cat([p.detach().flatten() for p in net.parameters()])
both = [torch.empty_like(weights) for _ in range(2)]
dist.all_gather(both, weights)
assert torch.equal(*both)
dist.destroy_process_group()
print("agreed")
"""


def test_distributed_data_parallel_in_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(rank), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in processes:
            output, errors = process.communicate(timeout=120)
            assert output.strip() == "agreed", errors[-2000:]
    finally:
        for process in processes:
            process.kill()


# --- the check itself
