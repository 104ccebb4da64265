"""The error for a plain initial state in a graph; importing this module imports Dynamo."""

import torch

from surnn.errors import ClockError

_PLAIN_STATE = (
    "a plain initial state holds no clock, and while a layer is compiled, traced, exported or "
    "transformed nothing can show whether it starts a sequence; to start one from your own h_0, "
    "pass layer.init_state(B, h_0), which is a SuState, or its pack(), which is one plain tensor"
)


@torch.compiler.disable(reason=_PLAIN_STATE)
def refuse_plain_state() -> None:
    """Raise when it is called. Dynamo must not trace the error: it would run the call without it.

    A graph that Dynamo made may have lost a clock, since it does not ask a tensor class about
    ``cat`` of a tuple. An error while it traces makes it fall back to Python with that state.
    """
    raise ClockError(_PLAIN_STATE)
