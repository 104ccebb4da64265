"""A streaming step as a graph of tensor operations, with all that is constant computed."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram, default_decompositions, export
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from .step import StreamingStep

ASSERTION: Any = torch.ops.aten._assert_tensor_metadata.default
EINSUM: Any = torch.ops.aten.einsum.default


def program_of(
    step: StreamingStep, otherwise: dict[Any, Callable[..., Tensor]] | None = None
) -> ExportedProgram:
    """The step for any size of the batch.

    Constants are computed here and by torch, for two reasons. A step should not rearrange weights
    over and over. And a rhythm's frequencies must be the very numbers that Python has: from another
    implementation of the same formula they differ in the last digit, and at t = 10^9 in phase.

    Args:
        step: what is traced.
        otherwise: operations that are to be done by others.
    """
    batch = Dim("batch", min=1)
    sizes = ({0: batch}, {name: {0: batch} for name in step.begin})
    inputs = (step.random_input(2), step.begin)
    with torch.no_grad(), quiet():
        traced = export(step, inputs, dynamic_shapes=sizes)
        # An einsum arranges its operands first; as plain products, that of weights is constant.
        table = {EINSUM: default_decompositions()[EINSUM], **(otherwise or {})}
        plain = traced.run_decompositions(table)
        program = export(folded(plain.module(check_guards=False)), inputs, dynamic_shapes=sizes)
    for node in program.graph.nodes:  # which line of which file it was is nobody's business
        node.meta.pop("stack_trace", None)
    return program


def folded(module: GraphModule) -> GraphModule:
    """The same with values in the place of what depends on no input."""
    known: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            known[node] = attrgetter(node.target)(module)
        elif node.target is ASSERTION:  # it held when the graph was made
            module.graph.erase_node(node)
        elif node.op == "call_function" and all(n in known for n in node.all_input_nodes):
            args, options = map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **options)
    for number, (node, value) in enumerate(known.items()):
        unknown_users = [user for user in node.users if user not in known]
        if not unknown_users or not isinstance(value, Tensor):
            continue
        with module.graph.inserting_before(node):
            constant = stored(module, f"constant_{number}", value.detach())
        for user in unknown_users:
            user.replace_input_with(node, constant)
    module.graph.eliminate_dead_code()
    return GraphModule(module, module.graph)  # with what is used of it, no more


def stored(module: GraphModule, name: str, value: Tensor) -> Node:
    """``value`` as a buffer, and the node that reads it.

    Files want tensors in row order, but products round differently in another: what is not in row
    order is stored so that a view of it has the order it had.
    """
    order = sorted(range(value.dim()), key=lambda d: -value.stride(d))
    module.register_buffer(name, value.permute(order).contiguous().clone())
    constant = module.graph.get_attr(name)
    if order == sorted(order):
        return constant
    back = [order.index(d) for d in range(value.dim())]
    return module.graph.call_function(torch.ops.aten.permute.default, (constant, back))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without torch's notes to itself."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)  # that torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", ".*_flat_weights.* were assigned during export")
            warnings.filterwarnings("ignore", "The given buffer is not writable")  # torch 2.11
            yield
    finally:
        log.setLevel(level)
