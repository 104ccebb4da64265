"""A diagonal state-space layer: S4D (Gu et al., 2022) with its linear initialisation."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..base import Mixer


class DiagonalSSM(Mixer):
    """One single-input system of ``modes`` complex modes for each channel.

    ``s' = A s + B u``, ``y = Re(C s) + D u``, A = -1/2 + iπn (S4D-Lin), discretised by zero-order
    hold with a learned step size for each channel. Whole sequences run by FFT, streams by
    recurrence. As in S4, step sizes and A have a learning rate of at most 1e-3 and no weight decay;
    the trainer reads ``learning_rate_limit``.

    Args:
        width: channels in and out.
        modes: N, complex modes per channel (conjugates not counted).
    """

    dense_recurrence = True

    def __init__(self, width: int, modes: int = 64) -> None:
        super().__init__()
        log_step = torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001)
        self.log_step = nn.Parameter(log_step)
        self.log_decay = nn.Parameter(torch.full((width, modes), math.log(0.5)))
        self.frequency = nn.Parameter(math.pi * torch.arange(modes).float().repeat(width, 1))
        self.read = nn.Parameter(torch.randn(width, modes, 2) * math.sqrt(0.5))
        self.skip = nn.Parameter(torch.randn(width))
        for parameter in (self.log_step, self.log_decay, self.frequency):
            parameter.learning_rate_limit = 1e-3  # type: ignore[attr-defined]

    def _discrete(self) -> tuple[Tensor, Tensor]:
        """ΔA and C (exp(ΔA) - 1) / A, each [width, modes]."""
        a = torch.complex(-self.log_decay.exp(), self.frequency)
        exponent = a * self.log_step.exp().unsqueeze(-1)
        return exponent, torch.view_as_complex(self.read) * (exponent.exp() - 1) / a

    def kernel(self, steps: int) -> Tensor:
        """The response [width, steps] to a unit impulse.

        Time step b * block + p is a coarse power times a fine one. So the sum over modes is one
        matrix product, and no tensor has modes * steps elements.
        """
        exponent, gain = self._discrete()
        block = math.isqrt(steps - 1) + 1
        offset = torch.arange(block, device=exponent.device)
        fine = (exponent.unsqueeze(-1) * offset).exp()  # [width, modes, block]
        coarse = gain.unsqueeze(-1) * (exponent.unsqueeze(-1) * (block * offset)).exp()
        # The real part of a complex product: Re Re - Im Im.
        left = torch.cat((coarse.real, -coarse.imag), 1).transpose(1, 2)
        right = torch.cat((fine.real, fine.imag), 1)
        return 2 * (left @ right).flatten(1)[:, :steps]

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The layer is causal and padding comes last, so ``lengths`` have no effect."""
        with torch.autocast(x.device.type, enabled=False):  # half precision would blur the kernel
            steps = x.shape[1]
            u = x.to(self.log_step.dtype).transpose(1, 2)  # [B, width, T]
            size = 2 * steps  # a shorter transform would wrap around
            spectrum = torch.fft.rfft(u, n=size) * torch.fft.rfft(self.kernel(steps), n=size)
            y = torch.fft.irfft(spectrum, n=size)[..., :steps] + self.skip.unsqueeze(-1) * u
            return y.transpose(1, 2).to(x.dtype)

    def init_state(self, batch: int) -> Tensor:
        like = self.log_decay
        dtype = like.dtype.to_complex()
        return torch.zeros((batch, *like.shape), dtype=dtype, device=like.device)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        exponent, gain = self._discrete()
        u = x.to(self.log_step.dtype)
        state = exponent.exp() * state + u.unsqueeze(-1)
        y = 2 * (gain * state).sum(-1).real + self.skip * u
        return y.to(x.dtype), state

    def state_names(self, first: int) -> tuple[str, ...]:
        return (f"s_{first}",)

    def split_state(self, state: Tensor) -> list[Tensor]:
        """[B, width, modes, 2]: real and imaginary parts."""
        return [torch.view_as_real(state)]

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> Tensor:
        return torch.view_as_complex(tensors[0])
