"""Recipes: whole, buildable without data, and of the sizes that the protocols state."""

from dataclasses import fields, replace

import pytest
import torch

import surnn
from surnn.config import RunConfig
from surnn.models.model import SequenceModel
from surnn.tasks import Tokens, Values
from surnn.tasks.copying import Copying
from surnn.tasks.mackey_glass import MackeyGlass
from surnn.train.optimizer_step import parameter_groups
from surnn_recipes import RECIPES


def build(config: RunConfig) -> SequenceModel:
    """The model at full size, on no device."""
    task = config.task
    with torch.device("meta"):
        return SequenceModel(config.model, config.gate, task.input, task.output, task.steps)


def parameters(name: str, gates: bool = True) -> int:
    model = build(RECIPES[name]())
    own = {id(p) for p in model.gate_parameters()}
    return sum(p.numel() for p in model.parameters() if gates or id(p) not in own)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole(name):
    recipe = RECIPES[name]
    config, brief = recipe(), recipe.in_budget(10)
    assert recipe.about.endswith(".")
    assert recipe.paper_name or recipe.paper is None
    assert bool(recipe.paper_table) == bool(recipe.paper_name)
    assert config.train.steps > config.train.warmup
    assert (config.train.minutes is None) != name.startswith("race-")
    assert brief.train.minutes == 10
    assert brief.task.steps <= config.task.steps
    assert (brief.task.input, brief.task.output) == (config.task.input, config.task.output)


# Models of the same build are built once: full sizes take their time.
BUILDS = {
    (c.model, c.gate, c.task.input, c.task.output, c.task.steps): name
    for name, c in ((name, recipe()) for name, recipe in RECIPES.items())
}


@pytest.mark.parametrize("name", BUILDS.values())
def test_every_recipe_builds(name):
    config = RECIPES[name]()
    model, task = build(config), config.task
    gates = [gate for layer in model.selective_layers() for gate in layer.gates]
    horizon = getattr(config.gate, "horizon", None) or task.steps
    assert all(getattr(gate, "horizon", horizon) == horizon for gate in gates)
    assert {gate.mode for gate in gates} <= {"hard", "soft", "sampled"}
    depth = len(config.model.widths or ()) or config.model.layers
    assert len(gates) in (0, depth)


def test_names_are_unique_and_ordered_by_the_paper():
    places = [r.paper_table for r in RECIPES.values() if r.paper_table]
    firsts = list(dict.fromkeys(places))
    assert firsts == [
        "Figure 2b", "Figure A3, text", "Table 2", "Table 3", "Table 4", "Table 5",
        "Table A1(a)", "Table A1(b)", "Figure A8",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("psmnist-stepwise-gru", 596_234),
        ("mackey-glass-10-gru", 49_729),
        ("mackey-glass-10-lstm", 66_289),
    ],
)
def test_parameters_are_those_of_the_protocol(name, count):
    assert parameters(name) == count


def test_gates_add_what_the_protocol_says():
    """2 HK + H for each layer, beside a network that is otherwise the GRU's."""
    assert parameters("psmnist-stepwise", gates=False) == 596_234
    assert parameters("psmnist-stepwise") - 596_234 == 2 * 131_328
    assert parameters("mackey-glass-10", gates=False) == 49_729


def test_the_demos_models_are_those_of_the_example():
    contestants = {
        "copying-100": surnn.SuGRU(9, 256, 2, heads=32, gate=surnn.Rhythm(horizon=120)),
        "copying-100-gru": torch.nn.GRU(9, 256, 2),
        "copying-100-chrono": torch.nn.GRU(9, 256, 2),
    }
    for name, layer in contestants.items():
        readout = 256 * 10 + 10
        assert parameters(name) == readout + sum(p.numel() for p in layer.parameters())
        assert RECIPES[name]().task == Copying(delay=100, objective="recall")
    (layer,) = build(RECIPES["copying-100"]()).selective_layers()
    assert (layer.heads, layer.gates[0].horizon) == (32, 120)
    assert layer.gates[0].surrogate == surnn.Surrogate("triangle", 1.0)
    assert RECIPES["copying-100-chrono"]().model.chrono


BESIDE = [
    *(f"{task}-{kind}" for task in ("smnist", "psmnist", "scifar")
      for kind in ("gru", "lstm", "mingru")),
    *(f"lra-{task}-{kind}" for task in ("listops", "text", "retrieval", "image", "pathfinder")
      for kind in ("gru", "lstm", "mingru")),
]  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_others_have_as_many_parameters_and_say_how_large_their_state_is(name):
    ours, kind = name.rsplit("-", 1)
    assert parameters(name) == pytest.approx(parameters(ours), rel=0.05)
    assert f"a state of {RECIPES[name]().model.width}" in RECIPES[name].about
    assert "512" in RECIPES[name].about
    config, plain = RECIPES[name](), RECIPES[ours]()
    assert (config.model.kind, config.task) == (kind, plain.task)
    assert config.train.cuda_graph  # as fast as cuDNN gets
    own = ("compile", "rate_penalty")
    same = {option: getattr(plain.train, option) for option in own}
    assert replace(config.train, **same) == plain.train
    assert config.model.half_state == (kind != "mingru")
    (first, *_) = build(RECIPES[ours]()).selective_layers()
    assert first.hidden_size == 512


EQUAL = [
    f"{task}-{kind}-equal"
    for task in ("smnist", "psmnist", "scifar", "lra-listops", "lra-text", "lra-retrieval",
                 "lra-image", "lra-pathfinder")
    for kind in ("s4d", "transformer")
]  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_rows_named_equal_have_our_training_and_as_many_parameters(name):
    ours, kind, _ = name.rsplit("-", 2)
    assert parameters(name) == pytest.approx(parameters(ours), rel=0.05)
    config, plain = RECIPES[name](), RECIPES[ours]()
    assert (config.model.kind, config.task) == (kind, plain.task)
    assert config.model.convolution == plain.model.convolution
    assert config.train.cuda_graph
    own = ("compile", "rate_penalty", "learning_rate")
    train = replace(config.train, **{name: getattr(plain.train, name) for name in own})
    assert train == plain.train
    assert config.train.learning_rate == (
        plain.train.learning_rate if kind == "s4d" else min(plain.train.learning_rate, 1e-3)
    )


@pytest.mark.parametrize("ours", ["scifar", "lra-image", "lra-pathfinder"])
def test_the_control_without_memory_sees_all_pixels(ours):
    """By as many parameters, in the same convolutions and a mean over steps."""
    assert parameters(f"{ours}-linear") == pytest.approx(parameters(ours), rel=0.05)
    beside, config = RECIPES[f"{ours}-linear"](), RECIPES[ours]()
    assert (beside.task, beside.model.convolution) == (config.task, config.model.convolution)
    assert "480 wide" in RECIPES[f"{ours}-linear"].about
    task = beside.task
    model = SequenceModel(beside.model, beside.gate, task.input, task.output, task.steps)
    x = torch.randn(1, task.steps, task.input.features, requires_grad=True)
    model(x).square().sum().backward()
    assert x.grad.ne(0).all()


@pytest.mark.parametrize(
    ("name", "row"), [("smnist", 28), ("scifar", 64), ("lra-image", 64), ("lra-pathfinder", 64)]
)
def test_pixels_meet_those_above_them(name, row):
    assert RECIPES[name]().model.convolution > row


def test_no_rate_is_asked_of_sigmoids():
    config = RECIPES["scifar-sigmoid"]()
    assert (config.gate.target_rate, config.train.rate_penalty) == (None, 0.0)


def test_rhythms_that_are_not_trained_are_open_as_often_as_others_are_pulled_to():
    frozen, ours = RECIPES["scifar-frozen"](), RECIPES["scifar"]()
    assert frozen.gate.rate == ours.gate.target_rate == 0.2
    assert frozen.gate.target_rate is None
    assert (frozen.gate.frozen, frozen.train.rate_penalty) == (True, 0.0)


def test_of_selective_copy_all_have_a_state_of_256():
    (first, *_) = build(RECIPES["selective-copy"]()).selective_layers()
    assert first.hidden_size == 256
    for kind in ("gru", "lstm", "mingru"):
        assert RECIPES[f"selective-copy-{kind}"]().model.width == 256
        assert "state of the same size" in RECIPES[f"selective-copy-{kind}"].about


def test_the_arenas_state_space_models_keep_s4s_rates():
    """The rest at the task's own rate, steps and A at 1e-3 without decay."""
    for task, rate in (("listops", 0.01), ("retrieval", 0.002), ("image", 0.004)):
        config = RECIPES[f"lra-{task}-s4d"]()
        groups = parameter_groups(build(config), config)
        full = {name: group["full"] for group in groups for name in group["params"]}
        decay = {name: group["weight_decay"] for group in groups for name in group["params"]}
        slow = [name for name in full if name.endswith(("log_step", "log_decay", "frequency"))]
        assert len(slow) == 3 * config.model.layers
        assert {full.pop(name) for name in slow} == {1e-3}
        assert {decay[name] for name in slow} == {0.0}
        assert set(full.values()) == {rate}


def test_a_limit_does_not_raise_a_rate():
    config = RECIPES["lra-listops-s4d"]()
    config = replace(config, train=replace(config.train, learning_rate=1e-4))
    assert {group["full"] for group in parameter_groups(build(config), config)} == {1e-4}


@pytest.mark.parametrize(
    ("name", "steps", "given", "wanted"),
    [
        ("copying-5000", 5020, Values(9), 10),
        ("selective-copy", 4112, Tokens(16), 16),
        ("lra-listops", 2000, Tokens(18), 10),
        ("lra-text", 4096, Tokens(256), 2),
        ("lra-retrieval", 4000, Tokens(256), 2),
        ("lra-image", 1024, Values(1), 10),
        ("lra-image-colour", 1024, Values(3), 10),
        ("lra-pathfinder", 1024, Values(1), 2),
        ("smnist", 784, Values(1), 10),
        ("scifar", 1024, Values(3), 10),
        ("mackey-glass", 5000, Values(1), 7),
        ("mackey-glass-1000", 5000, Values(1), 1),
        ("enwik8-sugru", 1024, Tokens(256), 256),
        ("wikitext103-sugru", 256, Tokens(50_257), 50_257),
    ],
)
def test_shapes_are_those_of_the_protocol(name, steps, given, wanted):
    task = RECIPES[name]().task
    assert (task.steps, task.input, task.output.size) == (steps, given, wanted)


@pytest.mark.parametrize(
    ("name", "permutation"),
    [
        ("psmnist", "bitreversal"),
        ("psmnist-torch0", "torch0"),
        ("psmnist-stepwise", "nru"),
        ("psmnist-stepwise-every-3", "nru"),
        ("spiking-psmnist", "torch0"),
    ],
)
def test_each_table_has_its_permutation(name, permutation):
    assert RECIPES[name]().task.permutation == permutation


def test_one_pass_models_have_32_heads_of_16():
    for name in ("smnist", "psmnist", "scifar", "lra-image"):
        for layer in build(RECIPES[name]()).selective_layers():
            assert (layer.heads, layer.head_size, layer.gates[0].width) == (32, 16, 32)


def test_stepwise_models_are_dense_with_a_gate_for_each_unit():
    (layer,) = build(RECIPES["psmnist-stepwise"]()).selective_layers()
    assert (layer.num_layers, layer.heads) == (2, 1)
    assert [gate.width for gate in layer.gates] == [256, 256]
    assert [gate.frequencies for gate in layer.gates] == [256, 256]
    train = RECIPES["psmnist-stepwise"]().train
    assert (train.steps, train.batch) == (50_000, 100)  # NRU's: 100 epochs of 500


def test_spiking_layers_have_64_256_256_units():
    layers = build(RECIPES["spiking-psmnist"]()).selective_layers()
    assert [layer.hidden_size for layer in layers] == [64, 256, 256]


def test_a_quarter_of_the_units_is_always_on():
    (layer,) = build(RECIPES["mackey-glass-always-on"]()).selective_layers()
    shares = [gate._forced_open / gate.width for gate in layer.gates]
    assert shares == [0.25] * 4


def test_recipes_named_by_a_rate_have_it_and_differ_in_nothing_else():
    for name, recipe in RECIPES.items():
        row, found, rate = name.partition("-rate-")
        if not found:
            continue
        field = "rate" if row == "psmnist-stepwise" else "target_rate"
        plain = RECIPES[row]()
        assert recipe() == replace(plain, gate=replace(plain.gate, **{field: float(rate)}))
        assert recipe() != plain


def test_every_horizon_has_a_recipe_for_every_model():
    for horizon in (10, 20, 50, 100, 200, 500, 1000):
        for ending in ("", "-always-on", "-gru", "-lstm", "-s4d"):
            task = RECIPES[f"mackey-glass-{horizon}{ending}"]().task
            assert task == MackeyGlass(horizons=(horizon,))


@pytest.mark.parametrize("task", ["listops", "text", "retrieval", "image", "pathfinder"])
def test_the_arena_has_all_its_rows(task):
    others = ("transformer", "s4d", "gru", "lstm", "mingru")
    rows = ("", "-sigmoid", "-open", "-input", "-frozen", *(f"-{kind}" for kind in others))
    kinds = [RECIPES[f"lra-{task}{row}"]().model.kind for row in rows]
    assert kinds == [*["sugru"] * 5, *others]
    ours, first, seeing = (RECIPES[f"lra-{task}{row}"]() for row in ("", "-open", "-input"))
    assert first == replace(ours, model=replace(ours.model, ungated_layers=1))
    assert (seeing.model, seeing.gate.kind) == (ours.model, "input")
    for row, kind in zip(rows, kinds, strict=True):  # captured updates need batches of one length
        config = RECIPES[f"lra-{task}{row}"]()
        captured = kind not in ("transformer", "s4d")
        assert config.train.cuda_graph == getattr(config.task, "one_length", captured) == captured
        assert config.train.compile == (kind == "sugru")


def test_the_arenas_averages_are_those_of_five_tasks():
    """Also Image's: the printed number, not the one in a comment of the paper's source."""
    tasks = ("listops", "text", "retrieval", "image", "pathfinder")
    ours = [RECIPES[f"lra-{task}"].paper for task in tasks]
    assert sum(ours) / 5 == pytest.approx(0.7164, abs=1e-4)
    for row, mean in (("sigmoid", 0.5944), ("transformer", 0.5439), ("s4d", 0.8403)):
        found = [RECIPES[f"lra-{task}-{row}"].paper for task in tasks]
        assert sum(found) / 5 == pytest.approx(mean, abs=1e-4)


def test_learned_rhythms_of_spiking_neurons_are_pulled_back_and_learn_slowly():
    for name in ("spiking-psmnist", "spiking-psmnist-adapting"):
        config = RECIPES[name]()
        assert config.gate.target_rate == config.gate.rate
        assert config.train.rate_penalty > 0
        assert config.train.gate_learning_rate == pytest.approx(config.train.learning_rate / 10)


def test_digits_are_mixed_where_they_are_permuted_and_not_shifted():
    mixed = {name for name, recipe in RECIPES.items() if recipe().train.mixup}
    assert {"psmnist", "psmnist-torch0", "psmnist-gru"} <= mixed
    assert all(name.startswith("psmnist") for name in mixed)
    assert not {"psmnist-shifted", "psmnist-stepwise"} & mixed


@pytest.mark.parametrize(
    ("name", "norm", "precision"),
    [
        ("lra-pathfinder", "batch", "bfloat16"),
        ("lra-pathfinder-gru", "batch", "bfloat16"),
        ("lra-image", "layer", "bfloat16"),
        ("spiking-psmnist-rhythm", "layer", "bfloat16"),
        ("copying-5000", "layer", "float32"),
    ],
)
def test_norms_and_precisions(name, norm, precision):
    config = RECIPES[name]()
    assert (config.model.norm, config.train.precision) == (norm, precision)


@pytest.mark.parametrize("task", ["psmnist", "scifar", "text", "listops"])
def test_only_the_layer_differs_in_a_race(task):
    kinds = ["sugru", "gru", "lstm", "mingru", "s4d", "transformer"]
    names = [f"race-{task}{end}" for end in ("", *(f"-{kind}" for kind in kinds[1:]))]
    configs = [RECIPES[name]() for name in names]
    ours, gru, lstm, *_ = configs
    assert [config.model.kind for config in configs] == kinds
    assert gru.train == lstm.train
    pace = ("minutes", "steps", "warmup", "evaluate_every")
    for config in configs:
        assert config.task.as_tested() == ours.task.as_tested()
        assert config.task.easy_batches == (0.4 * config.train.steps if task == "listops" else 0)
        like = gru if config in (gru, lstm) else ours
        assert all(getattr(config.train, n) == getattr(like.train, n) for n in pace)
        own = (*pace, "rate_penalty", *(["learning_rate"] if config is configs[-1] else []))
        common = {name: getattr(ours.train, name) for name in own}
        assert replace(config.train, **common) == ours.train
        assert config.train.warmup == config.train.steps // 20
        assert 0.5 <= config.train.minutes <= (2.1 if task == "listops" else 1)
        assert (config.train.compile, config.train.cuda_graph) == (False, True)
        assert config.train.mixup == 0
    assert configs[-1].train.learning_rate <= 1e-3
    own = {"kind", "width", "expand", "half_state", "ungated_layers", "feedforward"}
    for field in fields(ours.model):
        values = {getattr(config.model, field.name) for config in configs}
        assert (len(values) == 1) or field.name in own
    sizes = [parameters(name) for name in names]
    assert max(sizes) < 1.08 * min(sizes)  # each within 5 % of ours
