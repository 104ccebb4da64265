"""Backward passes that are operators of their own, and have no backward pass themselves."""

from typing import Any

from torch.library import CustomOpDef


def differentiate_once(operator: CustomOpDef, backend: str) -> None:
    """Refuse gradients of gradients, with the way to have them."""

    def refuse(_ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(
            f"backend {backend!r} has gradients, but not gradients of gradients; use "
            "backend='reference' for these"
        )

    operator.register_autograd(refuse)
