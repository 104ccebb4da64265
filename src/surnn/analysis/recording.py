"""What happened inside a model while it ran: gates and states of every layer, step by step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..baselines import DiagonalSSM, MinGRU, TorchRecurrent
from ..layers import SelectiveLayer
from ..layers.sequence import reverse
from ..scan import ScanInputs
from ..scan.contract import step_mask

Scan = Callable[[int, ScanInputs, str], tuple[Tensor, Tensor]]
"""Outputs and last state, from number, inputs and backend of a layer in one direction."""
DENSE = (TorchRecurrent, MinGRU, DiagonalSSM)
"""Recurrent layers without gates: all of their units update at all steps."""


class Unfit(ValueError):
    """A model or a run that something cannot be told of, and why."""


class LayerRecord(NamedTuple):
    """One layer in one direction, on the CPU. B sequences, T steps, H units of its state."""

    name: str
    """``"layer 1"``, counted from the input; ``"layer 1, backwards"`` for the other direction."""
    granularity: str
    """Who shares a gate: ``"unit"``, ``"16 units"``, ``"layer"``; ``"none"`` has no gates."""
    gate: Float[Tensor, "B T H"]
    """1 = update, 0 = carry, for each unit; between them if ``soft``; 0 past a sequence's length.
    Often a view: clone it before writing to it."""
    state: Float[Tensor, "B T H"]
    """What each unit holds after the step (a spiking unit: whether it emitted a spike); 0 past a
    sequence's length."""
    heads: int = 1
    """Blocks of neighbouring units that are coupled with each other, and with no others."""
    soft: bool = False
    """Whether its gates are never closed: each lets through a share of the update."""

    @property
    def group(self) -> int:
        """Units that share a gate, neighbours."""
        if self.granularity in ("unit", "none"):
            return 1
        if self.granularity == "layer":
            return self.gate.shape[-1]
        return int(self.granularity.split()[0])

    @property
    def by_gate(self) -> Float[Tensor, "B T G"]:
        """``gate`` with each gate once, not for each unit that shares it."""
        return self.gate[..., :: self.group]


class Recording(NamedTuple):
    """A model's pass over some sequences, on the CPU."""

    layers: tuple[LayerRecord, ...]
    """Recurrent layers in order, a stacked one's layers one by one."""
    x: Tensor
    """The input, as it was given."""
    lengths: Tensor | None
    """[B] steps of each sequence; None means all T."""
    output: Tensor
    """What the model gave."""
    blocks: tuple[Float[Tensor, "B T D"], ...]
    """Outputs of a model's blocks, whatever they hold; empty for a bare layer."""


@torch.no_grad()
def record(model: nn.Module, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Recording:
    """Run a model in evaluation mode, and keep what its recurrent layers did.

    Args:
        model: a :class:`~surnn.models.SequenceModel`, one of surnn's layers, or any module that
            contains some and is called as ``model(x)`` or ``model(x, lengths=lengths)``.
        x: as the model takes it.
        lengths: steps of each right-padded sequence.

    The model is as before afterwards.

    Example:
        >>> import surnn
        >>> layer = surnn.SuGRU(3, 8, num_layers=2, batch_first=True)
        >>> recording = record(layer, torch.randn(4, 50, 3))
        >>> [(layer.name, tuple(layer.gate.shape)) for layer in recording.layers]
        [('layer 1', (4, 50, 8)), ('layer 2', (4, 50, 8))]
    """
    ends = None if lengths is None else torch.as_tensor(lengths, device=x.device)
    found: list[LayerRecord] = []
    blocks: list[Tensor] = []
    training = model.training
    with ExitStack() as attached:
        for module in model.modules():
            if isinstance(module, SelectiveLayer):
                attached.enter_context(scanned_by(module, _keep(module, found)))
            elif isinstance(module, DENSE):
                hook = _keep_dense(found, ends)
                attached.callback(module.register_forward_hook(hook).remove)
        for block in getattr(model, "blocks", ()):
            hook = _keep_block(blocks)
            attached.callback(block.register_forward_hook(hook).remove)
        attached.callback(model.train, training)
        model.eval()
        output = model(x) if ends is None else model(x, lengths=ends)
    if not found:
        raise Unfit(
            f"{type(model).__name__} has no recurrent layer to record: neither one of surnn's nor "
            f"one of {', '.join(kind.__name__ for kind in DENSE)}"
        )
    if isinstance(output, tuple):  # a bare layer's last state is in its record
        output = output[0]
    layers = tuple(r._replace(name=f"layer {n}{r.name}") for n, r in _numbered(found))
    kept = None if ends is None else ends.flatten().cpu()
    return Recording(layers, x.cpu(), kept, output.cpu(), tuple(blocks))


@torch.no_grad()
def scan_inputs(model: nn.Module, x: Tensor) -> list[ScanInputs]:
    """What the scan of each of surnn's layers is given when the model runs on x."""
    found: list[ScanInputs] = []

    def scan(_index: int, inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        found.append(inputs)
        return SelectiveLayer._scan(inputs, backend)

    training = model.training
    with ExitStack() as attached:
        for module in model.modules():
            if isinstance(module, SelectiveLayer):
                attached.enter_context(scanned_by(module, scan))
        attached.callback(model.train, training)
        model.eval()(x)
    return found


@contextmanager
def scanned_by(layer: SelectiveLayer, scan: Scan) -> Iterator[None]:
    """While in here, ``layer`` runs its recurrences with ``scan``, which is told which one it is.

    The layers of a stack are no modules of their own, so torch's hooks do not reach them.
    """
    calls = count()
    layers = layer.num_layers * layer.num_directions

    def with_its_number(inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        return scan(next(calls) % layers, inputs, backend)

    layer._scan = with_its_number  # type: ignore[assignment]
    try:
        yield
    finally:
        del layer._scan


def _keep(layer: SelectiveLayer, found: list[LayerRecord]) -> Scan:
    def scan(index: int, inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        y, last = SelectiveLayer._scan(inputs, backend)
        gate, state = inputs.closed_past_length().expand(y.shape), y
        if backwards := index % layer.num_directions:
            gate, state = (reverse(v.flatten(2), inputs.lengths) for v in (gate, state))
        owner: Any = layer.gates[index]
        share = layer.state_size // owner.width
        granularity = {1: "unit", layer.state_size: "layer"}.get(share, f"{share} units")
        name = ", backwards" if backwards else ""
        kept = _batch_first(gate), _batch_first(state)
        found.append(LayerRecord(name, granularity, *kept, layer.heads, not owner.binary))
        return y, last

    return scan


def _keep_dense(found: list[LayerRecord], lengths: Tensor | None) -> Any:
    def hook(_module: nn.Module, _given: Any, y: Tensor) -> None:
        alive = y.new_ones(()).expand(y.shape)
        if lengths is not None:
            inside = step_mask(y.shape[1], lengths.flatten()).T.unsqueeze(-1)
            alive, y = inside.to(y.dtype).expand(y.shape), y * inside
        found.append(LayerRecord("", "none", alive.cpu(), y.cpu()))

    return hook


def _keep_block(blocks: list[Tensor]) -> Any:
    def hook(_module: nn.Module, _given: Any, y: Tensor) -> None:
        blocks.append(_batch_first(y))

    return hook


def _batch_first(values: Tensor) -> Tensor:
    """[T, B, ...] as [B, T, units]."""
    return values.flatten(2).transpose(0, 1).cpu()


def _numbered(found: list[LayerRecord]) -> Iterator[tuple[int, LayerRecord]]:
    """Both directions of a layer have one number."""
    number = 0
    for layer in found:
        number += not layer.name
        yield number, layer
