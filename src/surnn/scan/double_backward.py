"""Backward passes that are operators, and have no backward pass themselves."""

from typing import Any

from torch.library import CustomOpDef


def differentiate_once(operator: CustomOpDef, backend: str) -> None:
    """Make gradients of gradients an error, which names ``reference`` as the way out."""

    def refuse(_ctx: Any, *_grads: Any) -> Any:
        raise RuntimeError(
            f"backend {backend!r} has gradients, but not gradients of gradients; use "
            "backend='reference' for these"
        )

    operator.register_autograd(refuse)
