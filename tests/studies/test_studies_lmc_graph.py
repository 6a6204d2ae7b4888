"""The connectivity study on graphs, end to end on networks of 8 units."""

import pytest
import torch

from asym.data import load
from asym.models import build
from asym.nn import Variant
from asym.populations import Architecture, Evaluator, Layout, Member, Recipe, plan_for, train_chunk
from asym.populations.population import Population
from asym.store import read_table
from studies import lmc
from studies.presets import defaults

FAST = {"arch": "gnn", "width": 0.03125, "preset": "smoke", "train_size": 200, "epochs": 4, "points": 5, "quiet": True}
VARIANTS = ("standard", "sigma", "w", "w-sigma")


def _config(folder, **options):
    return lmc.Config(**{**FAST, "out": folder / "results", "runs": folder / "runs"} | options)


@pytest.fixture(scope="module")
def data():
    return load("digits-graph", train_size=300)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    return folder, lmc.run(_config(folder, variants=VARIANTS, alignments=("none", "weight", "activation")))


def test_variants_and_alignments(study):
    _, rows = study
    found = rows.groupby(["variant", "alignment"])["pair"].apply(list).to_dict()
    aligned = {("standard", a): [0, 1] for a in ("none", "weight", "activation")}
    assert found == aligned | {(v, "none"): [0, 1] for v in VARIANTS[1:]}
    assert rows["barrier_loss_mid"].notna().all()
    assert set(rows["dataset"]) == {"digits-graph"}
    assert set(rows["train_images"]) == {200}


def test_aligning_keeps_the_networks_and_their_statistics(study):
    _, rows = study
    standard = rows[rows["variant"] == "standard"]
    for _, pair in standard.groupby("pair"):
        assert pair["loss_b"].max() == pytest.approx(pair["loss_b"].min(), rel=1e-4)
        assert pair["barrier_loss_mid"].nunique() == 3


def test_again_changes_nothing(study):
    folder, _ = study
    before = (folder / "results" / "lmc.csv").read_text()
    lmc.run(_config(folder, variants=VARIANTS, alignments=("none", "weight", "activation")))
    assert (folder / "results" / "lmc.csv").read_text() == before


def test_the_linear_control_and_a_tuned_rate(tmp_path):
    rows = lmc.run(_config(tmp_path, arch="gnn-linear", variants=("standard", "w"), pairs=1, lrs=(1e-4, 1e-2)))
    assert sorted(rows["variant"] + " " + rows["alignment"]) == ["standard none", "standard weight", "w none"]
    tuning = read_table(tmp_path / "results" / "lmc_tuning.csv")
    assert sorted(tuning["lr"]) == [1e-4, 1e-4, 1e-2, 1e-2]  # the same rates for every variant
    assert tuning["chosen"].sum() == 2


BAD = [
    (["--arch", "gnn", "--dataset", "digits"], "--dataset: gnn takes a graph, digits has images"),
    (["--arch", "mlp", "--dataset", "digits-graph"], "--arch: mlp takes images, digits-graph is a graph"),
    (["--arch", "timm/resnet10t", "--dataset", "digits-graph"], "takes images"),
    (["--arch", "gnn", "--dataset", "ogbn-arxiv", "--data-dir", "."], "arxiv.zip"),
    (["--arch", "gnn", "--dataset", "ogbn-arxiv", "--download"], "not fetched"),
    (["--arch", "gnn", "--preset", "paper"], "ogbn-arxiv is not in"),
    (["--arch", "gnn", "--batch-size", "32"], "--batch-size"),
    (["--arch", "gnn", "--augment", "none"], "--augment"),
    (["--arch", "gnn-linear"], "--variants: sigma replaces activations, gnn-linear has none"),
    (["--arch", "gnn", "--norm", "group"], "norm"),
    (["--arch", "gnn", "--dataset", "unlabelled_graphs:toy"], "labels: the graph toy has none"),
]


@pytest.mark.parametrize(("args", "words"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_input_is_one_line(args, words, tmp_path, capsys, monkeypatch):
    module = tmp_path / "elsewhere" / "unlabelled_graphs.py"
    module.parent.mkdir()
    module.write_text(
        "import torch\nfrom asym.data import graph_data\n"
        "def toy():\n"
        "    i = torch.arange(3)\n"
        "    return graph_data('toy', features=torch.zeros(3, 2), edges=torch.stack([i, i]), labels=None,\n"
        "                      train=i[:1], val=i[1:2], test=i[2:], class_names=('a', 'b'))\n"
    )
    monkeypatch.syspath_prepend(str(module.parent))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert lmc.main(args) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    assert list(here.iterdir()) == []


def test_presets():
    paper = defaults("paper", "gnn", 1.0, "w-sigma")
    assert (paper.dataset, paper.epochs, paper.schedule, paper.warmup) == ("ogbn-arxiv", 500, "linear", 25.0)
    assert (paper.lr, paper.weight_decay, paper.kappa, paper.eval_images) == (1e-3, 0.0, None, None)
    laptop = defaults("laptop", "gnn-linear", 1.0, "w")
    assert (laptop.dataset, laptop.pairs, laptop.lr) == ("digits-graph", 5, None)
    assert {defaults("laptop", "gnn", 1.0, v).lrs for v in VARIANTS} == {laptop.lrs}


def test_the_loop_takes_one_step_an_epoch_on_training_nodes_alone(data):
    """Against a plain loop with torch.optim (sgd: Adam makes steps of rounding errors where a gradient is zero)."""
    architecture = Architecture("gnn", data.input_shape, data.classes, 0.03125)
    recipe = Recipe(optimizer="sgd", lr=0.5, epochs=4, schedule="linear", warmup=2.0, batch_size=7)
    member = Member(3, 0, recipe)
    plan = plan_for(Population(architecture, (member,), data.fingerprint), "cpu")
    assert (plan.chunk, plan.dtype, plan.channels_last) == (1, "float32", False)
    trained = train_chunk(architecture, [member], data, plan)
    network = build("gnn", input_shape=data.input_shape, classes=10, width=0.03125, seed=3)
    optimizer = torch.optim.SGD(network.parameters())
    graph = data.inputs(data.train)
    for step in range(4):
        optimizer.param_groups[0]["lr"] = recipe.lr_at(step)
        loss = torch.nn.functional.cross_entropy(network(graph), data.train.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert len(trained.history) == 4
    assert trained.history[-1]["train_loss"] == pytest.approx(loss.item(), rel=1e-3)
    layout = Layout.trainable(network)
    torch.testing.assert_close(trained.theta[0], layout.flatten(network.state_dict()), rtol=1e-3, atol=1e-4)
    running = Layout.running(network).flatten(network.state_dict())
    torch.testing.assert_close(trained.running[0], running, rtol=1e-3, atol=1e-4)


def test_statistics_of_a_point_are_those_of_the_whole_graph(data):
    """Evaluation with re-estimated statistics equals a pass in training mode, whatever was kept before."""
    network = build("gnn", variant=Variant("w"), input_shape=data.input_shape, classes=10, width=0.03125).eval()
    layout = Layout.full(network)
    row = layout.flatten(network.state_dict())
    found = Evaluator(network, layout, data, {"test": data.test}, reestimate=True)(row)["test"]
    with torch.no_grad():
        logits = network.train()(data.inputs(data.test))
    # Running variances are unbiased, those of the pass are not: n / (n − 1) with n = 1,797.
    assert found[0] == pytest.approx(torch.nn.functional.cross_entropy(logits, data.test.labels).item(), rel=5e-3)
    stale = Evaluator(network.eval(), layout, data, {"test": data.test})(row)["test"]
    assert abs(stale[0] - found[0]) > 0.02


def test_graphs_are_not_stacked(data):
    architecture = Architecture("gnn", data.input_shape, data.classes, 0.03125)
    members = [Member(s, 0, Recipe(epochs=1)) for s in (0, 1)]
    plan = plan_for(Population(architecture, tuple(members), data.fingerprint), "cpu")
    with pytest.raises(ValueError, match="trained one at a time"):
        train_chunk(architecture, members, data, plan)


def test_the_figure_counts_nodes(study):
    from figures import lmc as figure

    folder, _ = study
    names = [file.name for file in figure.draw(folder / "results")]
    assert names[0].startswith("lmc_gnn_digits-graph_4-epochs_200-nodes_width-0.03125")
