"""Records of a model's run: gates and states of every layer at every time step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from surnn.errors import SurnnError
from surnn.models.base import Mixer
from surnn.nn.layers import SelectiveLayer
from surnn.nn.layers.sequence import reverse
from surnn.scan import ScanInputs
from surnn.scan.contract import step_mask

Scan = Callable[[int, ScanInputs, str], tuple[Tensor, Tensor]]
"""Outputs and last state, from number, inputs and backend of a layer in one direction."""


class NotApplicable(SurnnError, ValueError):
    """An analysis or figure does not apply to a model or run; the message says why."""


class LayerRecord(NamedTuple):
    """One layer in one direction, on the CPU. B sequences, T time steps, H units of its state."""

    name: str
    """``"layer 1"``, counted from the input; ``"layer 1, backwards"`` for the other direction."""
    granularity: str
    """Units per gate: ``"unit"``, ``"16 units"``, ``"layer"``; ``"none"`` without gates."""
    gate: Float[Tensor, "B T H"]
    """1 = update, 0 = carry, for each unit; values between them if ``soft``; 0 in the padding.
    Often a view: clone it before writing to it."""
    state: Float[Tensor, "B T H"]
    """State of each unit after the time step (for a spiking unit: whether it emitted a spike); 0 in
    the padding."""
    heads: int = 1
    """Blocks of neighbouring units; the recurrence couples units of the same block only."""
    soft: bool = False
    """Whether its gates are soft: never closed, each applies a share of the update."""

    @property
    def group(self) -> int:
        """Number of neighbouring units that share a gate."""
        if self.granularity in ("unit", "none"):
            return 1
        if self.granularity == "layer":
            return self.gate.shape[-1]
        return int(self.granularity.split()[0])

    @property
    def by_gate(self) -> Float[Tensor, "B T G"]:
        """``gate`` with one entry per gate instead of one per unit."""
        return self.gate[..., :: self.group]


class Recording(NamedTuple):
    """A model's run on some sequences, on the CPU."""

    layers: tuple[LayerRecord, ...]
    """Recurrent layers in order; each layer of a stack has its own record."""
    x: Tensor
    """The input of the model."""
    lengths: Tensor | None
    """[B] time steps of each sequence; None means all T."""
    output: Tensor
    """The output of the model."""
    blocks: tuple[Float[Tensor, "B T D"], ...]
    """Outputs of all blocks of a model; empty for a bare layer."""


@torch.no_grad()
def record(model: nn.Module, x: Tensor, lengths: Tensor | Sequence[int] | None = None) -> Recording:
    """Run a model in evaluation mode and record the gates and states of its recurrent layers.

    The model does not change.

    Args:
        model: a ``SequenceModel``, one of surnn's layers, or any module that contains some
            and is called as ``model(x)`` or ``model(x, lengths=lengths)``.
        x: the input of the model.
        lengths: time steps of each right-padded sequence.

    Example:
        >>> import surnn
        >>> layer = surnn.SuGRU(3, 8, num_layers=2, batch_first=True)
        >>> recording = record(layer, torch.randn(4, 50, 3))
        >>> [(layer.name, tuple(layer.gate.shape)) for layer in recording.layers]
        [('layer 1', (4, 50, 8)), ('layer 2', (4, 50, 8))]
    """
    ends = None if lengths is None else torch.as_tensor(lengths, device=x.device)
    records: list[LayerRecord] = []
    blocks: list[Tensor] = []
    training = model.training
    with ExitStack() as hooks:
        for layer in selective_layers(model):
            hooks.enter_context(replace_scan(layer, _record_selective(layer, records)))
        for mixer in dense_recurrences(model):
            hook = _record_dense(records, ends)
            hooks.callback(mixer.register_forward_hook(hook).remove)
        for block in getattr(model, "blocks", ()):
            hook = _record_block(blocks)
            hooks.callback(block.register_forward_hook(hook).remove)
        hooks.callback(model.train, training)
        model.eval()
        output = model(x) if ends is None else model(x, lengths=ends)
    if not records:
        raise NotApplicable(
            f"{type(model).__name__} has no recurrent layer to record: expected one of surnn's "
            "layers, or a baseline with a recurrence: gru, lstm, rnn, mingru, delta or s4d"
        )
    if isinstance(output, tuple):  # a bare layer returns its last state too
        output = output[0]
    layers = tuple(r._replace(name=f"layer {n}{r.name}") for n, r in _number(records))
    ends = None if ends is None else ends.flatten().cpu()
    return Recording(layers, x.cpu(), ends, output.cpu(), tuple(blocks))


def selective_layers(model: nn.Module) -> list[SelectiveLayer]:
    """surnn's layers in any module."""
    return [module for module in model.modules() if isinstance(module, SelectiveLayer)]


def dense_recurrences(model: nn.Module) -> list[Mixer]:
    """Recurrences without gates: mixers whose units update at every time step."""
    mixers = [module for module in model.modules() if isinstance(module, Mixer)]
    return [mixer for mixer in mixers if mixer.dense_recurrence]


@torch.no_grad()
def scan_inputs(model: nn.Module, x: Tensor) -> list[ScanInputs]:
    """The inputs of the scan of each of surnn's layers when the model runs on x."""
    all_inputs: list[ScanInputs] = []

    def scan(_index: int, inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        all_inputs.append(inputs)
        return SelectiveLayer._scan(inputs, backend)

    training = model.training
    with ExitStack() as hooks:
        for layer in selective_layers(model):
            hooks.enter_context(replace_scan(layer, scan))
        hooks.callback(model.train, training)
        model.eval()(x)
    return all_inputs


@contextmanager
def replace_scan(layer: SelectiveLayer, scan: Scan) -> Iterator[None]:
    """Inside this context, ``layer`` runs its recurrences with ``scan``, which gets their number.

    The layers of a stack are not modules, so torch's hooks do not reach them.
    """
    calls = count()
    layers = layer.num_layers * layer.num_directions

    def numbered_scan(inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        return scan(next(calls) % layers, inputs, backend)

    layer._scan = numbered_scan  # type: ignore[assignment]
    try:
        yield
    finally:
        del layer._scan


def _record_selective(layer: SelectiveLayer, records: list[LayerRecord]) -> Scan:
    def scan(index: int, inputs: ScanInputs, backend: str) -> tuple[Tensor, Tensor]:
        y, last = SelectiveLayer._scan(inputs, backend)
        gate, state = inputs.closed_past_length().expand(y.shape), y.clone()  # callers may change y
        if backwards := index % layer.num_directions:
            gate, state = (reverse(v.flatten(2), inputs.lengths) for v in (gate, state))
        module: Any = layer.gates[index]
        group = layer.state_size // module.width
        granularity = {1: "unit", layer.state_size: "layer"}.get(group, f"{group} units")
        name = ", backwards" if backwards else ""
        values = _batch_first(gate), _batch_first(state)
        records.append(LayerRecord(name, granularity, *values, layer.heads, not module.binary))
        return y, last

    return scan


def _record_dense(records: list[LayerRecord], lengths: Tensor | None) -> Any:
    def hook(_module: nn.Module, _args: Any, y: Tensor) -> None:
        gate = y.new_ones(()).expand(y.shape)
        if lengths is not None:
            inside = step_mask(y.shape[1], lengths.flatten()).T.unsqueeze(-1)
            gate, y = inside.to(y.dtype).expand(y.shape), y * inside
        records.append(LayerRecord("", "none", gate.cpu(), y.cpu()))

    return hook


def _record_block(blocks: list[Tensor]) -> Any:
    def hook(_module: nn.Module, _args: Any, y: Tensor) -> None:
        blocks.append(_batch_first(y))

    return hook


def _batch_first(values: Tensor) -> Tensor:
    """[T, B, ...] as [B, T, units]."""
    return values.flatten(2).transpose(0, 1).cpu()


def _number(records: list[LayerRecord]) -> Iterator[tuple[int, LayerRecord]]:
    """Records with the numbers of their layers; both directions of a layer have the same number."""
    number = 0
    for layer in records:
        number += not layer.name
        yield number, layer
