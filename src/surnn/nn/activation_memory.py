"""The activation memory of training."""

from typing import Any

import torch
from torch import Tensor, nn


def activation_bytes(module: nn.Module, *inputs: Any, **options: Any) -> int:
    """Bytes that one forward pass saves for its backward pass, without parameters and inputs.

    With event-driven backends, activation memory scales with the update rate. Divide by the number
    of tokens, T times B, for the bytes per token. Temporary memory within the two passes is not
    counted; on a GPU, ``peak_memory`` in a run's log includes it.

    Example:
        >>> import surnn
        >>> often, rarely = (surnn.SuGRU(8, 64, heads=4, gate=surnn.EveryN(n)) for n in (1, 10))
        >>> x = torch.randn(500, 4, 8)
        >>> activation_bytes(often, x) > 3 * activation_bytes(rarely, x)
        True
    """
    saved: dict[int, Tensor] = {}  # keeps storages alive, so that no address is used twice
    arguments = [v for v in (*inputs, *options.values()) if isinstance(v, Tensor)]
    known = {_address(tensor) for tensor in (*arguments, *module.parameters(), *module.buffers())}

    def save(tensor: Tensor) -> Tensor:
        saved[_address(tensor)] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        output = module(*inputs, **options)
    del output
    return sum(v.untyped_storage().nbytes() for address, v in saved.items() if address not in known)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
