"""``onepass``: the paper's skip drive through torch's fused GRU (cuDNN on a GPU).

The input is widened by ``1 - g`` and the update gate's rows get ``+C`` on those channels, so that
a closed unit sees ``z' = sigmoid(z + C)``, about 1, which in PyTorch's convention (z = 1 keeps h)
means carry: C is **positive** here. The paper's C < 0 belongs to the other convention.

Contract, and how it differs from ``reference``:

* It walks all T steps. GRU only; block-diagonal heads are run as one dense matrix.
* The carry is exact as far as C and the fused kernel's own formula allow. With the default C the
  sigmoid rounds to exactly 1; a kernel that computes ``(1-z)*n + z*h`` then carries bit for bit
  (cuDNN does, see tests/test_cuda.py), one that computes
  ``n + z*(h-n)``, as torch's CPU kernel does, to within rounding.
* Gradients of weights, inputs and states agree with ``reference`` to rounding.
* **The gate's gradient does not.** It passes through the saturated sigmoid: at closed steps it is
  zero, at open ones it is ``-C * dL/dz``, not ``dL/dh * (f - h)``. A gate can learn to close but
  hardly to open. ``auto`` therefore never picks this backend.
"""

import torch
from torch import Tensor

from .contract import ScanInputs, step_mask
from .once import differentiate_once


def exact_skip_drive(dtype: torch.dtype) -> float:
    """C at which sigmoid(z + C) rounds to 1 for any z > -15 (float64: -27).

    A power of two, so that it survives TF32 and bf16 products unchanged.
    """
    return 64.0 if dtype == torch.float64 else 32.0


@torch.library.custom_op("surnn::fused_gru", mutates_args=())
def fused_gru(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor
) -> tuple[Tensor, Tensor]:
    """torch's one-layer GRU as one opaque operator, so that no compiler unrolls its time loop."""
    y, last = _gru(x, h, w_ih, w_hh, b_ih, b_hh)
    return y.contiguous(), last.clone()


@fused_gru.register_fake
def _(x, h, w_ih, w_hh, b_ih, b_hh):
    return x.new_empty(*x.shape[:2], h.shape[-1]), torch.empty_like(h)


@torch.library.custom_op("surnn::fused_gru_backward", mutates_args=())
def fused_gru_backward(
    grad_y: Tensor,
    grad_last: Tensor,
    x: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by all six inputs; runs the forward pass again."""
    leaves = [v.detach().requires_grad_() for v in (x, h, w_ih, w_hh, b_ih, b_hh)]
    # Inside an operator autograd is excluded from dispatch; for torch's own backward of its own
    # kernel it is let in again.
    included = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradCPU", "AutogradCUDA", "AutogradOther", "ADInplaceOrView"):
        excluded = excluded - torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(included, excluded), torch.enable_grad():
        y, last = _gru(*leaves)
        grads = torch.autograd.grad((y, last), leaves, (grad_y, grad_last))
    # Cloned, because cuDNN's weight gradients are views of one buffer.
    return tuple(grad.clone(memory_format=torch.contiguous_format) for grad in grads)  # type: ignore[return-value]


@fused_gru_backward.register_fake
def _(grad_y, grad_last, *inputs):
    return tuple(torch.empty_like(v, memory_format=torch.contiguous_format) for v in inputs)


def _gru(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    if x.is_cuda:  # cuDNN wants its weights in one piece, and warns at every call otherwise
        flat = torch.cat([w.flatten() for w in weights]).split([w.numel() for w in weights])
        weights = tuple(f.view_as(w) for f, w in zip(flat, weights, strict=True))
    return torch.gru(x, h, list(weights), True, 1, 0.0, True, False, False)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad_y, grad_last):
    return fused_gru_backward(grad_y, grad_last, *ctx.saved_tensors)


fused_gru.register_autograd(_backward, setup_context=_setup_context)
differentiate_once(fused_gru_backward, "onepass")


def unsupported(inputs: ScanInputs) -> str | None:
    """Why this backend cannot run these inputs, or None."""
    if inputs.cell.name != "gru":
        return (
            f"the skip drive works through the GRU's update gate; the cell here is "
            f"{inputs.cell.name!r}"
        )
    if not inputs.binary:
        return "it carries by saturating a sigmoid, which a soft gate does not do"
    return None


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, 1, D]."""
    heads, drives, width, _ = inputs.weight.shape
    hidden = heads * width
    steps, batch = inputs.x.shape[:2]
    dtype = inputs.state.dtype
    drive = exact_skip_drive(dtype) if inputs.skip_drive is None else inputs.skip_drive
    closed = 1 - inputs.closed_past_length().to(dtype)
    closed = closed.expand(steps, batch, heads, width).flatten(2)
    x = torch.cat((inputs.x.to(dtype), closed), -1)

    skip = inputs.weight.new_zeros(drives, hidden, hidden)
    skip[1] = drive * torch.eye(hidden, dtype=skip.dtype, device=skip.device)
    w_ih = torch.cat((_by_drive(inputs.weight), skip.flatten(0, 1)), 1).to(dtype)
    # [N, S, D, D] on the diagonal blocks of [S, N, D, N, D]
    same = torch.eye(heads, dtype=dtype, device=x.device)[:, None, None, :, None]
    w_hh = inputs.recurrent.to(dtype).unsqueeze(3) * same
    b_ih = _by_drive(inputs.bias).to(dtype)
    b_hn = inputs.unit[0].flatten().to(dtype)
    b_hh = torch.cat((b_hn.new_zeros(2 * hidden), b_hn))
    h = inputs.state[:, :, 0].flatten(1).unsqueeze(0)
    y, last = fused_gru(x, h.contiguous(), w_ih, _by_drive(w_hh.flatten(3)), b_ih, b_hh)
    y = y.unflatten(-1, (heads, width)).to(inputs.x.dtype)
    if inputs.lengths is not None:
        alive = step_mask(steps, inputs.lengths)[:, :, None, None]
        y = torch.where(alive, y, 0.0)
    return y, last[0].unflatten(-1, (heads, width)).unsqueeze(2)


def _by_drive(blocks: Tensor) -> Tensor:
    """[N, S, D, ...] to torch's [S * H, ...]."""
    return blocks.transpose(0, 1).flatten(0, 2)
