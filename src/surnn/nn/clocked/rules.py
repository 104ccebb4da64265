"""The effect of each torch function on the clock of a hidden state.

A rule gets the function, its arguments and its plain result, and returns the result to pass on.
Functions that move whole rows (sequences of a layer) are applied once more, to the numbers of the
rows: the result's numbers say where each row came from, and so which clock it has.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import get_default_nowrap_functions

from surnn.errors import ClockError

from .tensor import ClockedTensor, wrap

_STORE = (
    "store the packed state instead: start with state = layer.init_state(B).pack(), a plain tensor "
    "that holds the clock and passes as hx; for the values alone, take h.plain()"
)


def apply(func: Callable, args: Any, kwargs: Any) -> Any:
    """``func(*args, **kwargs)``, with the clock that its result has."""
    if func in _REFUSALS:
        _refuse_storing(func, args)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
    if func in _UNRELATED:
        return result
    rule = _RULES.get(func)
    if rule in (_keep, _select) and not isinstance(args[0], ClockedTensor):
        return result  # another tensor: x.to(h), x.view_as(h)
    if rule is None or len(args) < _NEEDS.get(rule, 1):  # a state given by keyword
        return _lose(func, (args, tuple(kwargs.values())), result)
    return rule(func, args, kwargs, result)


def _keep(func: Callable, args: Any, kwargs: Any, result: Tensor) -> Tensor:
    """The same rows, elsewhere: detached, converted, moved."""
    source = args[0]
    if not isinstance(result, Tensor):
        return result
    t, memory = source._t, source._memory
    if t is not None:
        t = t.to(result.device)
    if memory is not None:
        memory = memory.to(result.device)
        if not result.requires_grad:
            memory = memory.detach()
    return wrap(result, t, memory, source._lost, source._layers_first)


def _select(func: Callable, args: Any, kwargs: Any, result: Any) -> Any:
    """Rows of one state, elsewhere or in another order."""
    source = args[0]
    if func is _GETITEM and source._layers_first and _takes_one_layer(args[1]):
        return result
    if isinstance(result, tuple | list):
        moved = _moved_rows(func, args, kwargs, (0,))
        parts = zip(result, moved, strict=True) if moved else ((r, None) for r in result)
        return type(result)(_wrap_rows(source, part, rows) for part, rows in parts)
    if result.dim() < 2:
        return result
    return _wrap_rows(source, result, _moved_rows(func, args, kwargs, (0,)))


def _wrap_rows(source: ClockedTensor, values: Tensor, rows: Any) -> Tensor:
    first = source._layers_first and values.dim() == source.dim()
    if source._t is None or values.shape[-1] != source.shape[-1]:
        return wrap(values, None, None, source._lost or "a selection of features", first)
    if rows is None:  # one clock for all rows
        return wrap(values, source._t, None, "", first)
    return wrap(values, *_look_up((source,), rows), "", first)


def _join(func: Callable, args: Any, kwargs: Any, result: Tensor) -> Tensor:
    """Rows of several states, and zeros for plain tensors, which start a sequence."""
    parts = args[0]
    states = [part for part in parts if isinstance(part, ClockedTensor)]
    lost = next((state._lost for state in states if state._t is None), "")
    if lost or result.shape[-1] != states[0].shape[-1]:
        return wrap(result, None, None, lost or func.__name__, False)
    first = states[0]._layers_first and result.dim() == states[0].dim()
    if len(states) == len(parts) and _one_clock(states):
        return wrap(result, states[0]._t, None, "", first)
    return wrap(result, *_look_up(states, _moved_rows(func, args, kwargs, (0,))), "", first)


def _choose(func: Callable, args: Any, kwargs: Any, result: Tensor) -> Tensor:
    """``where`` and ``masked_fill``: rows of states, and the start where another value is taken."""
    condition, data = (args[0], (1, 2)) if func in _WHERE else (args[1], (0, 2))
    if func is Tensor.where:
        condition, data = args[1], (0, 2)
    states = [args[i] for i in data if isinstance(args[i], ClockedTensor)]
    lost = next((state._lost for state in states if state._t is None), "")
    by_row = condition.dim() == 0 or condition.shape[-1] == 1
    if lost or not by_row or result.shape != states[0].shape:
        return wrap(result, None, None, lost or func.__name__, False)
    rows = _moved_rows(func, args, kwargs, data, always=True)
    return _finish(func, args, result, states, rows)


def _scale(func: Callable, args: Any, kwargs: Any, result: Tensor) -> Tensor:
    """A product: rows multiplied by zero start again, the others keep their clock."""
    state, factor = args if isinstance(args[0], ClockedTensor) else args[::-1]
    if isinstance(factor, bool | int | float):
        factor = torch.tensor(factor, device=result.device)
    by_row = not isinstance(factor, ClockedTensor) and (factor.dim() == 0 or factor.shape[-1] == 1)
    if state._t is None or not by_row or result.shape != state.shape:
        return _lose(func, args, result)
    table = (state,)
    with torch._C.DisableTorchFunctionSubclass():
        rows = torch.where(factor != 0, _rows_of(state, 0), _count(table))
    return _finish(func, args, result, table, rows)


def _assign(func: Callable, args: Any, kwargs: Any, result: Any) -> Any:
    """``h[index] = value``: the sequences of the index take the clock of the value."""
    state, index, value = args
    if _reaches_features(index, state.dim()) or state._t is None:
        state._t, state._memory, state._lost = None, None, state._lost or "an assignment"
        return result
    if isinstance(value, ClockedTensor) and value._t is None:
        state._t, state._memory, state._lost = None, None, value._lost
        return result
    states = [s for s in (state, value) if isinstance(s, ClockedTensor)]
    with torch._C.DisableTorchFunctionSubclass():
        rows = _rows_of(state, 0).clone()
        rows[index] = _rows_of(value, state[..., 0].numel()) if len(states) > 1 else _count(states)
    state._t, state._memory = _look_up(states, rows)
    return result


def _copy(func: Callable, args: Any, kwargs: Any, result: Tensor) -> Tensor:
    """``h.copy_(other)`` and ``h.zero_()``: the clock of the other, or the start."""
    state, other = args[0], args[1] if len(args) > 1 else None
    if isinstance(other, ClockedTensor):
        state._t, state._memory, state._lost = other._t, other._memory, other._lost
    else:
        state._t = torch.zeros((), dtype=torch.int64, device=state.device)
        state._memory = None if state._memory is None else torch.zeros_like(state._memory)
        state._lost = ""
    return result


def _lose(func: Callable, args: Any, result: Any) -> Any:
    """Any other function: a result with as many features has lost the clock, others are plain."""
    states = [state for state in _flat(args) if isinstance(state, ClockedTensor)]
    name = getattr(func, "__name__", str(func))
    for value in result if isinstance(result, tuple | list) else (result,):
        if isinstance(value, ClockedTensor):  # changed in place
            value._t, value._memory, value._lost = None, None, name
    if type(result) is not Tensor or not result.is_floating_point():
        return result
    if result.dim() < 2 or all(result.shape[-1] != state.shape[-1] for state in states):
        return result
    if any(result is argument for argument in _flat(args)):
        return result
    return wrap(result, None, None, name, False)


def _refuse_storing(func: Callable, args: Any) -> None:
    """Raise where a state would be written into memory that has no clock."""
    target = args[0][0] if isinstance(args[0], list | tuple) else args[0]
    if isinstance(target, ClockedTensor) and func not in _TO_NUMPY:
        return
    where = "a NumPy array" if func in _TO_NUMPY else "a plain tensor"
    raise ClockError(f"{where} cannot hold the clock of this hidden state; {_STORE}")


# ---------------------------------------------------------------------------- rows


def _rows_of(state: Tensor, first: int) -> Tensor:
    """The numbers of the rows of ``state`` from ``first`` on, in its shape."""
    shape = state.shape[:-1]
    count = shape.numel()
    rows = torch.arange(first, first + count, device=state.device)
    return rows.view(*shape, 1).expand(state.shape)


def _count(states: Any) -> int:
    """The number of rows of all states: the number of the row that is a start."""
    return sum(state.shape[:-1].numel() for state in states)


def _moved_rows(func: Callable, args: Any, kwargs: Any, data: Any, always: bool = False) -> Any:
    """``func`` applied to row numbers in place of states; None if all rows have one clock."""
    flat = _flat([args[i] for i in data])
    states = [v for v in flat if isinstance(v, ClockedTensor)]
    if not always and len(flat) == 1 and _has_one_clock(states[0]):
        return None
    total, first = _count(states), 0

    def number(value: Any) -> Any:
        nonlocal first
        if isinstance(value, ClockedTensor):
            rows, first = _rows_of(value, first), first + value.shape[:-1].numel()
            return rows
        if isinstance(value, Tensor) and value.dim():
            return torch.full(value.shape, total, device=value.device)
        return torch.tensor(total, device=states[0].device) if isinstance(value, Tensor) else total

    with torch._C.DisableTorchFunctionSubclass():
        given = list(args)
        for i in data:
            given[i] = (
                [number(v) for v in args[i]]
                if isinstance(args[i], list | tuple)
                else number(args[i])
            )
        if func in _INPLACE_FILLS:
            given[0] = given[0].clone()
        return func(*given, **kwargs)


def _look_up(states: Any, rows: Tensor) -> tuple[Tensor, Tensor | None]:
    """Clock and memory of ``rows``, whose last dimension is that of features."""
    with torch._C.DisableTorchFunctionSubclass():
        index = rows[..., 0]
        times = [s._t.expand(s.shape[:-1]).flatten() for s in states]
        t = torch.cat([*times, times[0].new_zeros(1)])[index]
        memories = [s._memory for s in states]
        if any(memory is None for memory in memories):
            return t, None
        flat = [memory.reshape(-1, memory.shape[-1]) for memory in memories]
        return t, torch.cat([*flat, flat[0].new_zeros(1, flat[0].shape[-1])])[index]


def _finish(func: Callable, args: Any, result: Tensor, states: Any, rows: Tensor) -> Tensor:
    t, memory = _look_up(states, rows)
    if result is args[0] and isinstance(result, ClockedTensor):  # in place
        result._t, result._memory = t, memory
        return result
    return wrap(result, t, memory, "", states[0]._layers_first)


def _has_one_clock(state: ClockedTensor) -> bool:
    """Whether all rows have the same clock, or none has any."""
    return state._t is None or (state._t.dim() == 0 and state._memory is None)


def _one_clock(states: list[ClockedTensor]) -> bool:
    first = states[0]
    return all(s._t is first._t and s._memory is None for s in states) and first._t.dim() == 0  # type: ignore[union-attr]


def _flat(values: Any) -> list[Any]:
    flat = []
    for value in values:
        flat += _flat(value) if isinstance(value, list | tuple) else [value]
    return flat


def _takes_one_layer(index: Any) -> bool:
    first = index[0] if isinstance(index, tuple) and index else index
    return isinstance(first, int) and not isinstance(first, bool)


def _reaches_features(index: Any, dimensions: int) -> bool:
    """Whether ``index`` selects along the last dimension."""
    parts = list(index) if isinstance(index, tuple) else [index]
    used = sum(
        part.dim() if isinstance(part, Tensor) and part.dtype == torch.bool else 1
        for part in parts
        if part is not None and part is not Ellipsis
    )
    if any(part is Ellipsis for part in parts):
        return parts[-1] is not Ellipsis and parts[-1] != slice(None)
    return used >= dimensions


def _named(*names: str) -> set[Any]:
    """Functions of these names, as methods and as functions of ``torch``."""
    homes = (Tensor, torch)
    return {getattr(home, name) for name in names for home in homes if hasattr(home, name)}


_GETITEM = Tensor.__getitem__
_WHERE = {torch.where}
_INPLACE_FILLS = {Tensor.masked_fill_}
_TO_NUMPY = {Tensor.numpy, Tensor.__array__, Tensor.__dlpack__}
_REFUSALS = _TO_NUMPY | {
    Tensor.__setitem__, Tensor.copy_, Tensor.index_copy_, Tensor.index_put_, Tensor.scatter_,
    Tensor.masked_scatter_, Tensor.set_, torch._foreach_copy_,
}  # fmt: skip
_UNRELATED = get_default_nowrap_functions() | {torch.autograd.grad, Tensor.__repr__} | _named(
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros",
    "new_ones", "new_empty", "new_full", "new_tensor", "size", "stride", "dim", "as_subclass",
)  # fmt: skip
_RULES: dict[Any, Callable] = {
    **dict.fromkeys(
        _named(
            "detach",
            "detach_",
            "clone",
            "contiguous",
            "requires_grad_",
            "to",
            "type",
            "cpu",
            "cuda",
            "float",
            "double",
            "half",
            "bfloat16",
            "pin_memory",
            "share_memory_",
            "positive",
            "__pos__",
        )
        | {Tensor.data.__get__},  # type: ignore[attr-defined]
        _keep,
    ),
    **dict.fromkeys(
        _named(
            "__getitem__",
            "index_select",
            "narrow",
            "select",
            "split",
            "chunk",
            "tensor_split",
            "unbind",
            "transpose",
            "swapaxes",
            "swapdims",
            "permute",
            "movedim",
            "moveaxis",
            "unsqueeze",
            "squeeze",
            "expand",
            "expand_as",
            "repeat",
            "tile",
            "flip",
            "roll",
            "repeat_interleave",
            "view",
            "reshape",
            "view_as",
            "reshape_as",
            "flatten",
            "unflatten",
            "t",
        ),
        _select,
    ),
    **dict.fromkeys(
        _named("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack"), _join
    ),
    **dict.fromkeys(_named("where", "masked_fill", "masked_fill_"), _choose),
    **dict.fromkeys(
        _named("mul", "mul_", "multiply", "multiply_", "__mul__", "__rmul__", "__imul__"), _scale
    ),
    Tensor.__setitem__: _assign,
    Tensor.copy_: _copy,
    Tensor.zero_: _copy,
}
_NEEDS = {_choose: 3, _scale: 2, _assign: 3}
"""The least number of positional arguments of a rule; 1 for the others."""
