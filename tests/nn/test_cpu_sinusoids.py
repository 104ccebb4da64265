"""Sums of sinusoids on a CPU, whose sines are kept from one forward pass to the next."""

import torch

import surnn
from surnn.nn.gates.cpu_sinusoids import CpuSinusoids, Grid


def test_sines_kept_on_a_cpu_change_no_number() -> None:
    gate = surnn.Rhythm(rate=0.3, horizon=50, frequencies=5).bind(hidden_size=7)
    for steps in (torch.arange(1, 21), torch.arange(3, 23), torch.arange(1, 21)):
        t = steps[:, None]
        with torch.inference_mode():
            gate.preactivation(t, None, torch.empty(0))
        kept, _ = gate.preactivation(t, None, torch.empty(0))
        plain = gate.wave(t) + gate.bias.double()
        assert torch.equal(kept, plain)
        weight = torch.randn(kept.shape, dtype=torch.float64)
        names = ("amplitude", "phase", "bias")
        parameters = [gate.get_parameter(name) for name in names]
        ours = torch.autograd.grad((kept * weight).sum(), parameters)
        expected = torch.autograd.grad((plain * weight).sum(), parameters)
        for name, a, b in zip(names, ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, msg=name)


def test_sines_kept_on_a_cpu_have_second_derivatives() -> None:
    gate = surnn.Rhythm(rate=0.3, horizon=50, frequencies=3).bind(hidden_size=2).double()
    t = torch.arange(1, 6)[:, None]

    def total(amplitude: torch.Tensor, phase: torch.Tensor) -> torch.Tensor:
        grid = Grid(gate.min_period, gate.max_period, gate.frequencies)
        return CpuSinusoids.apply(t, grid, amplitude, phase, gate.bias)

    inputs = [p.detach().requires_grad_() for p in (gate.amplitude, gate.phase)]
    assert torch.autograd.gradcheck(total, inputs)
    assert torch.autograd.gradgradcheck(total, inputs)
