"""What surnn's layers are compared with, in the same models and the same trainer.

Each is a *mixer*: [B, T, width] in, [B, T, width] out, causal. Those that can stream have
``init_state(batch)`` and ``step(x, state)`` too, and all but the state-space layer
``run(x, state, lengths)`` for some steps at once.
"""

from .attention import Attention as Attention
from .linear import LinearMap as LinearMap
from .mingru import MinGRU as MinGRU
from .recurrent import TorchRecurrent as TorchRecurrent
from .ssm import DiagonalSSM as DiagonalSSM
