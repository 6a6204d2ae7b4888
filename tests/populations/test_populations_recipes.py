import pytest
from jaxtyping import TypeCheckError

from asym.populations import Recipe


def test_geometric_warmup_is_the_published_course():
    recipe = Recipe(lr=1e-2, schedule="geometric", warmup=20, epochs=100)
    assert recipe.lr_at(0) == pytest.approx(1e-4)
    assert recipe.lr_at(0.9) == pytest.approx(1e-4)  # constant within an epoch
    assert recipe.lr_at(1) / recipe.lr_at(0) == pytest.approx(1.2589, rel=1e-4)
    assert recipe.lr_at(20) == pytest.approx(1e-2)
    assert recipe.lr_at(99.5) == pytest.approx(1e-2)


@pytest.mark.parametrize(
    ("schedule", "epoch", "factor"),
    [
        ("constant", 3.0, 1.0),
        ("linear", 1.0, 0.5),
        ("linear", 2.0, 1.0),
        ("linear", 9.0, 1.0),
        ("triangular", 1.0, 0.5),
        ("triangular", 2.0, 1.0),
        ("triangular", 6.0, 0.5),
        ("triangular", 10.0, 0.0),
        ("cosine", 1.0, 0.5),
        ("cosine", 2.0, 1.0),
        ("cosine", 6.0, 0.5),
        ("cosine", 10.0, 0.0),
    ],
)
def test_schedules_by_hand(schedule, epoch, factor):
    recipe = Recipe(lr=0.2, schedule=schedule, warmup=2, epochs=10)
    assert recipe.lr_at(epoch) == pytest.approx(0.2 * factor, abs=1e-12)


@pytest.mark.parametrize("schedule", ["constant", "linear", "geometric", "cosine"])
def test_no_warmup_starts_at_the_peak(schedule):
    assert Recipe(lr=0.1, schedule=schedule, warmup=0, epochs=5).lr_at(0) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", 0.0),
        ("lr", float("nan")),
        ("weight_decay", -1.0),
        ("warmup", -1.0),
        ("epochs", 0),
        ("batch_size", 0),
        ("smoothing", 1.0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("dropout", float("nan")),
    ],
)
def test_a_bad_field_is_named(field, value):
    with pytest.raises(ValueError, match=f"^{field}: got"):
        Recipe(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("optimizer", "lion"), ("schedule", "steps"), ("augment", "per-image")])
def test_an_unknown_name_is_refused(field, value):
    with pytest.raises(TypeCheckError, match=value):  # the annotation, checked here at run time
        Recipe(**{field: value})
    recipe = Recipe()
    object.__setattr__(recipe, field, value)
    with pytest.raises(ValueError, match=f"^{field}: got '{value}', must be one of"):  # what a user meets
        recipe.__post_init__()


def test_a_triangle_needs_its_corner_inside():
    with pytest.raises(ValueError, match=r"^warmup"):
        Recipe(schedule="triangular", warmup=20, epochs=20)
