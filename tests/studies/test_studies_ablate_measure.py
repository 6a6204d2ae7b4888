"""Factors and measures of the ablations by hand."""

import dataclasses
import math

import pytest
import torch

from asym.populations import Trained
from figures.ablate import AXES
from studies import ablate_measure, lmc
from studies.ablate_factors import FACTORS, Base

BASE = Base(20, 4.0, 1.0, (1e-3, 1e-2), smoke=False, kaiming=True, equal_width=lambda: 0.9)


def test_the_table_of_factors_is_whole():
    assert set(AXES) == set(FACTORS)
    fields = {field.name for field in dataclasses.fields(lmc.Config)}
    for name, factor in FACTORS.items():
        values = factor.values(BASE) if factor.values else ()
        assert all(v >= factor.least and (not factor.whole or v == int(v)) for v in values)
        levels = list(factor.levels(BASE, values))
        assert len({(level.level, level.variant) for level in levels}) == len(levels), name
        assert all(set(level.options) <= fields for level in levels)
        assert set(factor.takes) <= fields
        if AXES[name].label and factor.measure == "pair":
            assert {level.value for level in levels} - {None} == set(values)


def test_w_scale_is_left_out_where_it_is_the_standard_network():
    variants = [[level.variant for level in FACTORS["init"].levels(base, ())]
                for base in (BASE, dataclasses.replace(BASE, kaiming=False))]  # fmt: skip
    assert variants == [["standard", "w-scale", "w-init", "w"], ["standard", "w-init", "w"]]


class Bowl:
    """A loss of x² and an accuracy of 1 − |x| / 10 at a point x of the line."""

    def __call__(self, row):
        x = row.double()[0].item()
        return {"test": (x**2, 1 - abs(x) / 10), "train": (2 * x**2, 1.0)}


def test_merges_by_hand():
    rows = ablate_measure.merges(Bowl(), [torch.tensor([x]) for x in (-1.0, 1.0, 3.0)], (2, 3))
    two, three = rows
    assert (two["k"], two["loss"], two["loss_mid"], two["barrier_loss_mid"]) == (2, 1.0, 0.0, -1.0)
    assert three["loss"] == pytest.approx(11 / 3)
    assert three["barrier_loss_mid"] == pytest.approx(1 - 11 / 3)
    assert three["loss_worst"] == 9.0
    assert three["acc_worst"] == pytest.approx(0.7)
    assert three["barrier_acc_mid"] == pytest.approx((0.9 + 0.9 + 0.7) / 3 - 0.9)
    assert three["train_barrier_loss_mid"] == pytest.approx(2 * (1 - 11 / 3))


def test_planes_by_hand():
    row = ablate_measure.plane(Bowl(), [torch.tensor([x]) for x in (-1.0, 1.0, 3.0)])
    assert row["barrier_loss_mid"] == pytest.approx(1 - 11 / 3)
    # middles 0, 1, 2 with losses 0, 1, 4 against 1, 5, 5
    assert row["barrier_loss_edges"] == pytest.approx((-1 - 4 - 1) / 3)


def test_the_plane_keeps_the_distances_of_weight_space():
    generator = torch.Generator().manual_seed(0)
    points = [torch.randn(50, generator=generator) for _ in range(3)]
    u, v, corners = ablate_measure.plane_frame(points)
    assert (u @ v).item() == pytest.approx(0, abs=1e-9)
    assert u.norm().item() == pytest.approx(v.norm().item())
    size = (points[1] - points[0]).norm().item()
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert math.dist(corners[i], corners[j]) * size == pytest.approx(
            (points[i] - points[j]).norm().item(), rel=1e-5
        )
    x, y = corners[2]
    torch.testing.assert_close((points[0].double() + x * u + y * v).float(), points[2])
    with pytest.raises(ValueError, match="on a line"):
        ablate_measure.plane_frame([torch.tensor([x, 0.0]) for x in (0.0, 1.0, 3.0)])


class Coin:
    """Logits ± s at a point s; three of four images are right."""

    def logits(self, row):
        s = row[0].item()
        part = (torch.tensor([[s, -s]] * 4, dtype=torch.float64), torch.tensor([0, 0, 0, 1]))
        return {"val": part, "test": part}


def test_a_barrier_that_is_lost_confidence_alone_vanishes_when_calibrated():
    row = ablate_measure.calibrated(Coin(), torch.tensor([0.2]), torch.tensor([3.0]), [0.0, 0.5, 1.0])
    best = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    assert row["calibrated_loss_a"] == pytest.approx(best)
    assert row["barrier_calibrated_mid"] == pytest.approx(0, abs=1e-8)
    assert abs(row["barrier_loss_mid"]) > 0.05
    assert row["temperature_mid"] == pytest.approx(2 * 1.6 / math.log(3), rel=1e-4)
    assert row["barrier_acc_mid"] == 0


def test_epochs_to_the_target_by_hand():
    def trained(*accuracies):
        history = [{"network": i, "epoch": t + 1, "train_acc": a} for i, row in enumerate(accuracies)
                   for t, a in enumerate(row)]  # fmt: skip
        return Trained(torch.zeros(2, 1), torch.zeros(2, 0), history, [0, 0], 0.0)

    reach = ablate_measure._epochs_to_target
    assert reach([trained((0.5, 0.9, 0.8), (0.1, 0.2, 0.95))], 0.9) == {"epochs_to_target": 2.5}
    assert math.isnan(reach([trained((0.5, 0.9), (0.1, 0.2))], 0.9)["epochs_to_target"])
    old = Trained(torch.zeros(1, 1), torch.zeros(1, 0), [{"network": 0, "epoch": 1, "train_loss": 1.0}], [0], 0.0)
    assert math.isnan(reach([old], 0.9)["epochs_to_target"])
