"""``onepass``: the paper's skip drive through torch's fused GRU (cuDNN on a GPU).

The input is widened by ``1 - g`` and the update gate's rows get ``+C`` on those channels, so that
a closed unit sees ``z' = sigmoid(z + C)``, about 1, which in PyTorch's convention (z = 1 keeps h)
means carry: C is **positive** here. The paper's C < 0 belongs to the other convention.

Contract, and how it differs from ``reference``:

* It runs all T steps. GRU only; block-diagonal heads are run as one dense matrix. A sequence cannot
  be reset inside it: torch's fused GRU has no place for that.
* The carry is exact by default. C is chosen so large that the sigmoid is exactly 1 whatever x, the
  weights and the state are (:func:`exact_skip_drive`), and outputs of closed units are copies of
  the last open ones. Inside, a kernel that computes ``(1-z)*n + z*h`` carries bit for bit (cuDNN
  does, see tests/scan/test_cuda.py). One that computes ``n + z*(h-n)``, as torch's CPU kernel does,
  carries to within rounding, which later updates see. With a C of your own (``skip_drive``) the
  carry is the paper's approximate one, and nothing is copied.
* A step at which all units of a sequence are closed reads nothing; with a C of your own it reads
  the finite elements of x, as in the paper. At other steps x must be finite, and weights always:
  heads share one dense matrix, so that NaN spreads to all of them.
* Gradients of weights, inputs and states agree with ``reference`` to rounding.
* **The gate's gradient does not.** It passes through the saturated sigmoid: at closed steps it is
  zero, at open ones it is ``-C * dL/dz``, not ``dL/dh * (f - h)``. A gate can learn to close but
  hardly to open. ``auto`` therefore never picks this backend for a learned gate. It does pick it
  for gates without gradients, on a GPU, where units have gates of their own and the ``triton``
  kernels do not support the scan (see :func:`surnn.scan.dispatch.choose`).
"""

import torch
from torch import Tensor

from .contract import ScanInputs, ScanTraits
from .double_backward import differentiate_once


@torch.no_grad()
def exact_skip_drive(inputs: ScanInputs) -> Tensor:
    """C at which sigmoid(z + C) rounds to 1 for every z that can occur: a scalar tensor.

    |z| is bounded by the largest input, weights and state; the state of a GRU never leaves the
    interval of its initial values and [-1, 1]. C is a power of two, so that it survives TF32 and
    bf16 products unchanged.
    """
    dtype = inputs.state.dtype
    x, bias, state = (_largest(v) for v in (inputs.x, inputs.bias[:, 1], inputs.state))
    by_x = inputs.weight[:, 1].abs().sum(-1).max()
    by_state = inputs.recurrent[:, 1].abs().sum(-1).max()
    bound = by_x * x + bias + by_state * state.clamp(min=1)
    saturated = 64.0 if dtype == torch.float64 else 32.0
    drive = torch.exp2(torch.ceil(torch.log2(2 * (bound.double() + saturated))))
    return drive.clamp(max=torch.finfo(dtype).max / 4).to(dtype)


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value among the finite ones, or 0."""
    values = torch.where(values.isfinite(), values, 0.0).abs().flatten()
    return torch.cat((values, values.new_zeros(1))).max()


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
    # Inside an operator autograd is excluded from dispatch. torch's backward of its own kernel
    # needs it included again.
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
    if x.is_cuda:  # cuDNN warns at every call unless its weights are one block of memory
        flat = torch.cat([w.flatten() for w in weights]).split([w.numel() for w in weights])
        weights = tuple(f.view_as(w) for f, w in zip(flat, weights, strict=True))
    return torch.gru(x, h, list(weights), True, 1, 0.0, True, False, False)


def _setup_context(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad_y, grad_last):
    return fused_gru_backward(grad_y, grad_last, *ctx.saved_tensors)


fused_gru.register_autograd(_backward, setup_context=_setup_context)
differentiate_once(fused_gru_backward, "onepass")


def unsupported(traits: ScanTraits) -> str | None:
    """Why this backend cannot run such a scan, or None."""
    if traits.cell.name != "gru":
        return (
            f"the skip drive works through the GRU's update gate; the cell here is "
            f"{traits.cell.name!r}"
        )
    if traits.resets:
        return "torch's fused GRU cannot reset a state inside a sequence"
    if not traits.binary:
        return "it carries by saturating a sigmoid, which a soft gate does not do"
    return None


def scan(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Outputs [T, B, N, D] and the last state [B, N, 1, D]."""
    heads, drives, width, _ = inputs.weight.shape
    hidden = heads * width
    steps, batch = inputs.x.shape[:2]
    dtype = inputs.state.dtype
    own_drive = inputs.skip_drive
    exact = own_drive is None
    is_open = inputs.gate != 0
    is_read = is_open.flatten(2).any(-1, keepdim=True)
    if not exact:  # closed units read x a little; only NaN and infinity are hidden from them
        is_read = is_read | inputs.x.isfinite()
    x = torch.where(is_read, inputs.x, 0.0).to(dtype)
    drive = exact_skip_drive(inputs.replace(x=x)) if own_drive is None else own_drive
    closed = 1 - inputs.gate.to(dtype)
    closed = closed.expand(steps, batch, heads, width).flatten(2)
    x = torch.cat((x, closed), -1)

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
    y, last = y.unflatten(-1, (heads, width)), last[0].unflatten(-1, (heads, width))
    if exact and steps:
        carried = _carried(is_open, y.detach(), inputs.state[:, :, 0].detach())
        # The values of the copies, with the gradients of y.
        y, last = carried + (y - y.detach()), carried[-1] + (last - last.detach())
    return y.to(inputs.x.dtype), last.unsqueeze(2)


def _carried(is_open: Tensor, y: Tensor, state: Tensor) -> Tensor:
    """y [T, B, N, D] with the last open value, or the initial state, wherever a unit is closed."""
    steps = torch.arange(1, y.shape[0] + 1, device=y.device)[:, None, None, None]
    source = torch.where(is_open, steps, 0).cummax(0).values
    return torch.cat((state.unsqueeze(0), y)).gather(0, source.expand_as(y))


def _by_drive(blocks: Tensor) -> Tensor:
    """[N, S, D, ...] to torch's [S * H, ...]."""
    return blocks.transpose(0, 1).flatten(0, 2)
