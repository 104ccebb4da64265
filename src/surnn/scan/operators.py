"""Operators on the operands of a scan.

A ``torch.library`` operator needs a flat schema. Everything else takes
:class:`~surnn.scan.contract.ScanOperands` as one structure. This module is the only place where
the two meet: the schema is generated from the structure's fields, and an operator's arguments are
those fields, then its own. Call one as ``operator(*operands.flat(), ...)``.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints

import torch
from torch import Tensor
from torch.library import CustomOpDef

from surnn.nn.cells import Cell

from .contract import ScanOperands

_SCHEMA_TYPES = {Tensor: "Tensor", Tensor | None: "Tensor?", Cell: "str", bool: "bool"}
_HINTS = get_type_hints(ScanOperands)
_FIELDS = [field.name for field in fields(ScanOperands)]
OPERAND_SCHEMA = ", ".join(f"{_SCHEMA_TYPES[_HINTS[name]]} {name}" for name in _FIELDS)
COUNT = len(_FIELDS)
TENSOR_COUNT = sum(_SCHEMA_TYPES[_HINTS[name]].startswith("Tensor") for name in _FIELDS)
# x, weight, bias, recurrent, unit, gate and decay come first, and have gradients.
DIFFERENTIABLE = _FIELDS.index("decay") + 1
UNIT, GATE = _FIELDS.index("unit"), _FIELDS.index("gate")


def define_operator(
    name: str, function: Callable, fake: Callable, arguments: str, results: int
) -> CustomOpDef:
    """The operator ``surnn::name`` of ``function(operands, ...)``, which returns tensors.

    Args:
        name: its name without the namespace.
        function: computes the results from the operands and the other arguments.
        fake: the same for tensors without values: gives results of the right shapes.
        arguments: schema of the arguments after the operands.
        results: number of tensors returned.
    """
    schema = f"({OPERAND_SCHEMA}, {arguments}) -> ({', '.join(['Tensor'] * results)})"
    operator = torch.library.custom_op(
        f"surnn::{name}", from_flat(function), mutates_args=(), schema=schema
    )
    operator.register_fake(from_flat(fake))
    return operator


def from_flat(function: Callable) -> Callable:
    """``function(operands, ...)`` as a function of an operator's flat arguments."""

    @wraps(function, assigned=("__name__", "__doc__"), updated=())
    def run(*arguments: Any) -> Any:
        return function(ScanOperands.from_flat(arguments[:COUNT]), *arguments[COUNT:])

    return run


def save_operands(ctx: Any, arguments: Sequence[Any], *more: Tensor) -> None:
    """Save an operator's operands, and ``more`` tensors, for its backward pass."""
    ctx.save_for_backward(*arguments[:TENSOR_COUNT], *more)
    ctx.options = arguments[TENSOR_COUNT:COUNT]


def saved_operands(ctx: Any) -> tuple[tuple[Any, ...], tuple[Tensor, ...]]:
    """The tensors of :func:`save_operands`: flat operands, and the others."""
    saved = ctx.saved_tensors
    return (*saved[:TENSOR_COUNT], *ctx.options), saved[TENSOR_COUNT:]


def argument_gradients(
    needs: Sequence[bool], grads: Sequence[Tensor], by_state: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients by all arguments of a forward operator, None where none is needed.

    ``grads`` are those by the differentiable operands. The operator's first argument after the
    operands is the initial state; the arguments after it have no gradient.
    """
    by_operands = [g if need else None for g, need in zip(grads, needs, strict=False)]
    constants = [None] * (COUNT - len(by_operands))
    rest = [None] * (len(needs) - COUNT - 1)
    return (*by_operands, *constants, by_state if needs[COUNT] else None, *rest)
