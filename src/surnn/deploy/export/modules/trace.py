"""The calls of a module's forward, recorded by torch.fx."""

import inspect
from typing import Any

from torch import nn
from torch.fx import Graph, Node, Tracer

from surnn.nn.layers import SelectiveLayer

from .signals import NotExportable


class OneInput(nn.Module):
    """Calls a module with one input; its other arguments have their defaults."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Any) -> Any:
        return self.module(x)


class CallTracer(Tracer):
    """Records calls of torch's and surnn's modules, and looks into all others."""

    def __init__(self) -> None:
        super().__init__()
        self.path = ""
        """The module whose forward runs."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if isinstance(m, SelectiveLayer) or type(m).__module__.startswith("surnn."):
            return True
        return super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        outer, self.path = self.path, self.path_of_module(m)
        result = super().call_module(m, forward, args, kwargs)
        self.path = outer
        return result


def trace(module: nn.Module) -> tuple[nn.Module, Graph]:
    """The graph of ``module``'s forward, and the module that its names are relative to."""
    _check_signature(module)
    root, tracer = OneInput(module), CallTracer()
    try:
        return root, tracer.trace(root)
    except Exception as error:  # forward is the user's code and may raise anything
        raise NotExportable(
            f"{readable_path(tracer.path)}: its forward is not a fixed chain of calls, because it "
            f"depends on the values or the length of the input, or fails: {error}"
        ) from error


def _check_signature(module: nn.Module) -> None:
    parameters = list(inspect.signature(module.forward).parameters.values())
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p.name for p in parameters if p.kind in plain and p.default is p.empty]
    if len(required) > 1:
        raise NotExportable(
            f"{type(module).__name__}.forward needs {len(required)} inputs "
            f"({', '.join(required)}); a stream has one: give the others a default"
        )


def path_of(node: Node) -> str:
    """The module that a node belongs to, for messages."""
    if node.op == "call_module":
        return readable_path(str(node.target))
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return readable_path(str(stack[-1][0]) if stack else "module")


def readable_path(name: str) -> str:
    """A name relative to :class:`OneInput` as one relative to the user's module."""
    inner = name.removeprefix("module").removeprefix(".")
    return f"module {inner!r}" if inner else "the module itself"
