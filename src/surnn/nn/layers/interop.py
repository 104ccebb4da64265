"""Weights from and to torch's own layers."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from .weights import RecurrentWeights


class TorchInterop(RecurrentWeights):
    """Base of layers that may have a counterpart in ``torch.nn``."""

    input_size: int
    hidden_size: int
    num_layers: int
    batch_first: bool
    dropout: float
    bidirectional: bool
    expand: int
    proj_size: int
    """0, as of a torch layer without a projection; surnn has none."""

    _torch_class: Any = None

    @classmethod
    def from_torch(cls, module: nn.RNNBase, **options) -> Self:
        """A layer with the weights of a torch layer. ``options`` are gate, backend, ...

        With ``gate=AlwaysOpen()`` it computes the same as ``module``. It preserves requires_grad.
        """
        if cls._torch_class is None or not isinstance(module, cls._torch_class):
            loads = "no torch layer" if cls._torch_class is None else cls._torch_class.__name__
            raise TypeError(f"{cls.__name__} loads {loads}, got {type(module).__name__}")
        if getattr(module, "proj_size", 0):
            raise ValueError("a torch LSTM with proj_size has no counterpart here; use expand")
        if options.get("heads", 1) != 1:
            raise ValueError("torch's recurrent weights are dense: heads must be 1")
        if options.get("expand", 1) != 1:
            raise ValueError("torch's layers have no expanded state: expand must be 1")
        weight: Tensor = module.weight_ih_l0  # type: ignore[assignment]
        layer = cls(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            bias=module.bias,
            batch_first=module.batch_first,
            dropout=module.dropout,
            bidirectional=module.bidirectional,
            device=weight.device,
            dtype=weight.dtype,
            **cls._options_of(module),
            **options,
        )
        layer.load_state_dict(module.state_dict(), strict=False)
        own = dict(layer.named_parameters())
        for name, parameter in module.named_parameters():
            if name in own:  # preserve requires_grad
                own[name].requires_grad_(parameter.requires_grad)
        return layer.train(module.training)

    @classmethod
    def _options_of(cls, module: nn.RNNBase) -> dict[str, Any]:
        return {}

    def to_torch(self) -> nn.RNNBase:
        """The torch layer with these weights; heads become blocks of a dense matrix.

        Gates are dropped: the two agree where every gate is open.
        """
        if self._torch_class is None or self.expand > 1:
            raise ValueError(
                f"{type(self).__name__}{' with expand' if self.expand > 1 else ''} has no torch "
                "counterpart"
            )
        weight: Tensor = self.weight_ih_l0  # type: ignore[assignment]
        module = self._torch_class(
            input_size=self.input_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            bias=self.bias,
            batch_first=self.batch_first,
            dropout=self.dropout,
            bidirectional=self.bidirectional,
            device=weight.device,
            dtype=weight.dtype,
            **self._torch_options(),
        )
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                own = getattr(self, name)
                parameter.copy_(self._dense(own) if name.startswith("weight_hh") else own)
                parameter.requires_grad_(own.requires_grad)
        return module.train(self.training)

    def _torch_options(self) -> dict[str, Any]:
        return {}

    def _dense(self, recurrent: Tensor) -> Tensor:
        """[S * H, D] to the block-diagonal [S * H, H]."""
        blocks = recurrent.unflatten(0, (-1, self.heads, self.head_size))  # [S, N, D, D]
        same = torch.eye(self.heads, dtype=blocks.dtype, device=blocks.device)
        return (blocks.unsqueeze(3) * same[:, None, :, None]).flatten(3).flatten(0, 2)
