"""What training keeps in memory."""

from typing import Any

import torch
from torch import Tensor, nn


def activation_bytes(module: nn.Module, *inputs: Any, **options: Any) -> int:
    """Bytes that one forward pass keeps for its backward pass, parameters and inputs aside.

    Of surnn's layers by an event-driven backend these are what updates need, so they follow the
    update rate; ``activation_bytes(model, x) / x.numel()`` is their number for each token. Peaks
    within the two passes come on top: on a GPU, ``peak_memory`` in a run's log has all.

    Example:
        >>> import surnn
        >>> often, seldom = (surnn.SuGRU(8, 64, heads=4, gate=surnn.EveryN(n)) for n in (1, 10))
        >>> x = torch.randn(500, 4, 8)
        >>> activation_bytes(often, x) > 3 * activation_bytes(seldom, x)
        True
    """
    kept: dict[int, Tensor] = {}  # storages stay alive in here, so that no address comes twice
    given = [v for v in (*inputs, *options.values()) if isinstance(v, Tensor)]
    known = {_place(tensor) for tensor in (*given, *module.parameters(), *module.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        kept[_place(tensor)] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = module(*inputs, **options)
    del made
    return sum(v.untyped_storage().nbytes() for place, v in kept.items() if place not in known)


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
