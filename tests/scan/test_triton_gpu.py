"""The kernels on a GPU, over a wide grid; ``make test-gpu`` runs it."""

import pytest
import torch

import surnn
from helpers.kernels import (
    DEVICE,
    SMALL,
    SPIKING,
    TOLERANCE,
    assert_kernels_equal_reference,
    kernels,
    needs_gpu,
    pytestmark,  # noqa: F401 (of this module)
)
from helpers.scans import (
    converted,
    make_inputs,
    poisoned_memory,  # noqa: F401 (a fixture)
    run_with_gradients,
)
from surnn.nn.cells import CELLS


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
OTHER_CELLS = [
    *(("lstm", 20, FP32), ("lstm", 64, BF16), ("lstm", 128, BF16)),
    *(("rnn_tanh", 32, FP16), ("rnn_tanh", 128, FP32)),
    *(("gru", 256, BF16), ("gru", 200, FP32), ("lstm", 128, FP32), ("lstm", 256, FP16)),
    ("gru", 512, BF16),
]


@needs_gpu
@pytest.mark.parametrize(
    ("cell", "width", "dtype"),
    [("gru", w, dtype) for w in (1, 16, 20, 32, 64, 128) for dtype in (BF16, FP16, FP32)]
    + OTHER_CELLS,
)
@pytest.mark.usefixtures("tf32")
def test_widths_and_dtypes(cell, width, dtype):
    shape = {"batch": 33, "features": 17, "per_sequence": True}
    if width % 32 == 0:
        shape = {"batch": 130, "features": 130, "heads": 3}
    inputs = make_inputs(cell, steps=67, width=width, **shape)
    assert_kernels_equal_reference(inputs, dtype, TOLERANCE.get(dtype, TOLERANCE["tf32"]))


@needs_gpu
@pytest.mark.parametrize("cell", sorted(CELLS))
@pytest.mark.parametrize("kind", [*SMALL, "lengths", "per sequence and unit"])
def test_float32_wide(cell, kind):
    options = SMALL.get(kind, {"per_sequence": True, "per_unit": kind != "lengths"})
    if kind == "lengths":
        options["lengths"] = torch.randint(1, 71, (37,))
    inputs = make_inputs(cell, steps=70, batch=37, width=20, features=33, rate=0.3, **options)
    tolerance = 1e-4 if cell in SPIKING else TOLERANCE["ieee"]
    assert_kernels_equal_reference(inputs, tolerance=tolerance)


@needs_gpu
@pytest.mark.parametrize("cell", sorted(CELLS))
def test_repeats_bit_for_bit(cell):
    inputs = make_inputs(cell, steps=150, batch=70, width=32, features=33, requires_grad=True)
    inputs = converted(inputs, torch.bfloat16, DEVICE)
    first, second = (run_with_gradients(kernels, inputs) for _ in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)


@needs_gpu
def test_a_new_length_or_batch_compiles_nothing():
    from surnn.scan.triton import launch  # noqa: PLC0415

    def compiled() -> int:
        found = [v for k, v in vars(launch).items() if k.endswith("_kernel")]
        return sum(len(k.device_caches[torch.cuda.current_device()][0]) for k in found)

    layer = surnn.SuGRU(32, 64, heads=4, backend="triton").cuda()
    counts = []
    for steps, batch in ((64, 64), (100, 33), (77, 50), (1, 61)):
        layer(torch.randn(steps, batch, 32, device="cuda"))[0].sum().backward()
        counts.append(compiled())
    assert len(set(counts)) == 1


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("gate", ["rhythm", "ssm", "full"])
def test_no_host_synchronisation_with_a_max_rate(gate):
    layer = surnn.SuGRU(32, 64, num_layers=2, heads=4, gate=gate, max_rate=0.9).cuda()
    x = torch.randn(50, 20, 32, device="cuda", requires_grad=True)
    layer(x)[0].sum().backward()
    torch.use_deterministic_algorithms(False)
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer(x)[0].sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node")  # of the warm-up's side stream
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_training_step_as_one_cuda_graph(cell):
    """Three layers, loss, backward and AdamW: captured once, replayed, equal to eager."""
    torch.use_deterministic_algorithms(False)
    kind = {"gru": surnn.SuGRU, "lstm": surnn.SuLSTM}[cell]

    def build():
        torch.manual_seed(0)
        gate = surnn.Rhythm(rate=0.2, horizon=100)
        layer = kind(16, 64, num_layers=3, heads=4, gate=gate, max_rate=0.5).cuda()
        return layer, torch.optim.AdamW(layer.parameters(), lr=1e-3, capturable=True)

    x = torch.randn(100, 24, 16, device="cuda")
    target = torch.randn(100, 24, 64, device="cuda")

    def step(layer, optimizer):
        optimizer.zero_grad(set_to_none=True)
        loss = (layer(x)[0] - target).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    layer, optimizer = build()
    eager = [step(layer, optimizer).item() for _ in range(6)]
    layer, optimizer = build()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        losses = [step(layer, optimizer).item() for _ in range(3)]
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step(layer, optimizer)
    for _ in range(3):
        graph.replay()
        losses.append(loss.item())
    assert losses == eager


@needs_gpu
def test_evaluation_first_and_training_after():
    layer = surnn.SuGRU(9, 64, heads=4, gate=surnn.Rhythm(frequencies=17)).cuda()
    x = torch.randn(20, 8, 9, device="cuda")
    with torch.inference_mode():
        layer(x)
    layer(x)[0].sum().backward()


@needs_gpu
def test_auto_chooses_the_kernels():
    assert surnn.SuGRU(8, 64, heads=4).cuda().chosen_backend == "triton"
    assert surnn.SuGRU(8, 64, heads=4).cuda().double().chosen_backend == "events"
    assert surnn.SuGRU(8, 256).cuda().chosen_backend == "triton"
    assert surnn.SuGRU(8, 1030).cuda().chosen_backend == "events"
    fixed = surnn.SuGRU(8, 1030, gate=surnn.Rhythm(rate=0.3, frozen=True)).cuda()
    assert fixed.chosen_backend == "onepass"
    x = torch.randn(50, 3, 8, device="cuda")
    found = fixed(x)[0]
    fixed.backend = "reference"
    torch.testing.assert_close(found, fixed(x)[0], rtol=1e-2, atol=1e-2)  # cuDNN may use TF32
    assert surnn.SuGRU(8, 64, heads=4).chosen_backend == "events"  # on the CPU


@needs_gpu
@pytest.mark.parametrize("mode", ["hard", "sampled"])
def test_an_input_gate_decides_as_on_the_cpu(mode):
    layer = surnn.SuGRU(9, 64, heads=4, gate=surnn.InputGate(mode=mode))
    x = torch.randn(50, 8, 9)
    layer.train(mode == "sampled")
    x[3, 2, 1] = float("nan")
    t = torch.arange(1, 51)[:, None]
    expected = layer.gates[0](t, x)[0].g
    found = layer.cuda().gates[0](t.cuda(), x.cuda())[0].g
    assert (found[3, 2] == 0).all()
    if mode == "hard":
        assert (found.cpu() != expected).float().mean() < 1e-3  # but for ties within rounding


@needs_gpu
def test_autocast_makes_products_in_half_precision_and_keeps_the_state_whole():
    layer = surnn.SuGRU(9, 64, heads=4, gate="rhythm").cuda()
    x = torch.randn(100, 8, 9, device="cuda")
    y, _ = layer(x)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        half, h_n = layer(x)
    half.float().sum().backward()
    assert (half.dtype, h_n.dtype) == (torch.bfloat16, torch.float32)
    assert (half.float() - y).norm() / y.norm() < TOLERANCE[torch.bfloat16]
