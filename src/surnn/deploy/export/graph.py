"""A streaming step as a graph of tensor operations, with constants folded."""

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
    step: StreamingStep, replacements: dict[Any, Callable[..., Tensor]] | None = None
) -> ExportedProgram:
    """The step for any batch size.

    Torch computes the constants here, for two reasons. A step should not rearrange weights every
    time. And a rhythm's frequencies must be exactly Python's: another implementation of the formula
    differs in the last digit, and at t = 10^9 that is another phase.

    Args:
        step: the step to trace.
        replacements: other implementations of some operations.
    """
    batch = Dim("batch", min=1)
    sizes = ({0: batch}, {name: {0: batch} for name in step.zero_state})
    inputs = (step.random_input(2), step.zero_state)
    with torch.no_grad(), quiet():
        traced = export(step, inputs, dynamic_shapes=sizes)
        # An einsum rearranges its operands. Decomposed, the rearranged weights are constants.
        table = {EINSUM: default_decompositions()[EINSUM], **(replacements or {})}
        plain = traced.run_decompositions(table)
        module = fold_constants(plain.module(check_guards=False))
        program = export(module, inputs, dynamic_shapes=sizes)
    for node in program.graph.nodes:  # files should not hold paths of this machine
        node.meta.pop("stack_trace", None)
    return program


def fold_constants(module: GraphModule) -> GraphModule:
    """The same graph, where values replace all nodes that depend on no input."""
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
            constant = store_constant(module, f"constant_{number}", value.detach())
        for user in unknown_users:
            user.replace_input_with(node, constant)
    module.graph.eliminate_dead_code()
    return GraphModule(module, module.graph)  # a new module drops unused attributes


def store_constant(module: GraphModule, name: str, value: Tensor) -> Node:
    """Store ``value`` as a buffer; returns the node that reads it.

    Files hold contiguous tensors, but products round differently in another memory order. So a
    tensor in another order is stored permuted, and the node is a view with the original order.
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
    """Suppress torch's internal warnings."""
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = log.level
    log.setLevel(logging.ERROR)  # it warns that torchvision is not installed
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated", FutureWarning)
            warnings.filterwarnings("ignore", ".*_flat_weights.* were assigned during export")
            warnings.filterwarnings("ignore", "The given buffer is not writable")  # torch 2.11
            yield
    finally:
        log.setLevel(level)
