"""From recorded calls to a program: interprets the graph on signals."""

import copy
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from surnn.models.signature import Tokens, Values

from .functions import call_function, call_method
from .layers import call_layer
from .lowering import Lowering
from .program import StreamProgram
from .signals import INPUT_LAYOUTS, NotExportable, Parts, Signal, WrongLayout, is_abstract
from .trace import path_of, trace


def as_program(module: nn.Module) -> StreamProgram:
    """The same computation as ``module`` in evaluation mode, one time step at a time.

    Raises:
        NotExportable: a part of the module cannot run as a stream; the message names it.
    """
    root, graph = trace(copy.deepcopy(module).cpu().eval())
    failures: list[tuple[int, bool, NotExportable]] = []
    for layout in INPUT_LAYOUTS:
        interpreter = Interpreter(root, graph, layout)
        try:
            return interpreter.run()
        except NotExportable as error:
            failures.append((interpreter.position, not isinstance(error, WrongLayout), error))
    raise max(failures, key=lambda failure: failure[:2])[2]  # of the layout that got furthest


class Interpreter:
    """Runs a graph on signals, for one layout of the input."""

    def __init__(self, root: nn.Module, graph: Graph, layout: str) -> None:
        self.root, self.graph = root, graph
        self.position = 0
        """The number of the node that runs."""
        self.lowering = Lowering(layout)
        self.values: dict[Node, Any] = {}

    @torch.no_grad()
    def run(self) -> StreamProgram:
        for position, node in enumerate(self.graph.nodes):
            self.position, self.lowering.node = position, node
            try:
                self.values[node] = self._value(node)
            except NotExportable as error:
                raise type(error)(f"{path_of(node)}{_call(node)}: {error}") from error
        return self.lowering.program

    def _value(self, node: Node) -> Any:
        if node.op == "placeholder":
            return self.lowering.input
        if node.op == "output":
            return self._finish(self._arguments(node)[0][0])
        if node.op == "get_attr":
            return _attribute(self.root, str(node.target))
        args, options = self._arguments(node)
        if node.op == "call_module":
            module = self.root.get_submodule(str(node.target))
            return call_layer(module, self.lowering, args, options)
        target: Any = node.target
        if not is_abstract([*args, *options.values()]):  # computed from weights alone
            return (
                getattr(args[0], target)(*args[1:], **options)
                if node.op == "call_method"
                else (target(*args, **options))
            )
        call = call_method if node.op == "call_method" else call_function
        return call(target, self.lowering, args, options)

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, options = map_arg((node.args, node.kwargs), self.values.__getitem__)
        return tuple(args), dict(options)

    def _finish(self, result: Any) -> None:
        if isinstance(result, list | tuple) and result:  # states after it stay in the stream
            result = result[0]
        if isinstance(result, Parts):
            raise NotExportable("it returns a layer's (y, h); return y")
        if not isinstance(result, Signal):
            raise NotExportable("its first output is not computed for each time step")
        result.expect_on_time()
        program, size = self.lowering.program, self.lowering.input.width.known()
        program.output = result.value
        program.inputs = Tokens(size) if self.lowering.takes_tokens else Values(size)


def _attribute(root: nn.Module, name: str) -> Any:
    value: Any = root
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _call(node: Node) -> str:
    """The function that a node calls, for messages."""
    if node.op == "call_method":
        return f", .{node.target}()"
    if node.op == "call_function":
        return f", {getattr(node.target, '__name__', node.target)}"
    return ""
