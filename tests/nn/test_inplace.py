"""The output of a layer may be changed in place, as that of ``nn.GRU``."""

import pytest
import torch
from torch import nn

import surnn
from surnn.nn.runtime import is_interpreted

BACKENDS = ["reference", "events", "native", "onepass", *(["triton"] if is_interpreted() else [])]


def run(layer: nn.Module, x: torch.Tensor, in_place: bool) -> list[torch.Tensor]:
    """The result of some operations on the output, and all gradients."""
    y, hidden = layer(x)
    h = hidden[0] if isinstance(hidden, tuple) else hidden
    wide = torch.cat((x, x), -1)[..., : y.shape[-1]]
    if in_place:
        y += wide
        y = nn.ReLU(inplace=True)(y)
        h += 1
    else:
        y, h = torch.relu(y + wide), h + 1
    loss = (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum() + (h**2).sum()
    leaves = [x, *layer.parameters()]
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [y, h, *(torch.zeros(()) if g is None else g for g in grads)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_layers": 2},
        {"bidirectional": True},
        {"batch_first": True},
        {"expand": 2},
        {"gate": "every_n"},
        {"heads": 1},
    ],
    ids=str,
)
def test_results_and_gradients_are_those_of_operations_out_of_place(backend, options):
    torch.manual_seed(0)
    layer = surnn.SuGRU(4, 4, **{"heads": 2, **options}, backend=backend)
    x = torch.randn(9, 3, 4, requires_grad=True)
    for found, expected in zip(run(layer, x, True), run(layer, x, False), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["SuRNN", "SuLSTM", "SuSNN"])
def test_other_layers(kind):
    torch.manual_seed(0)
    layer = getattr(surnn, kind)(4, 4)
    x = torch.randn(9, 3, 4, requires_grad=True)
    for found, expected in zip(run(layer, x, True), run(layer, x, False), strict=True):
        assert torch.equal(found, expected)


def test_lengths_and_streams():
    layer = surnn.SuGRU(4, 4)
    x = torch.randn(9, 3, 4, requires_grad=True)
    y, _ = layer(x, lengths=torch.tensor([9, 2, 5]))
    y *= 2
    y.sum().backward()
    y, state = layer(x, layer.init_state(3))
    state.cell.mul_(0)
    y.add_(1).sum().backward()


def test_the_output_takes_no_second_buffer():
    """Merging heads copies nothing."""
    layer = surnn.SuGRU(4, 4, heads=2)
    scan, outputs = layer._scan, []

    def keep(inputs, backend):
        y, last = scan(inputs, backend)
        outputs.append(y.data_ptr())
        return y, last

    layer._scan = keep
    y, _ = layer(torch.randn(9, 3, 4))
    assert y.data_ptr() == outputs[0]
