"""The methods of every mixer and every block.

A *mixer* is a causal layer: [B, T, features] to [B, T, width]. A *block* wraps a mixer, or works
alone, and has the time first: [T, B, features] to [T, B, width]. Both also run as streams. The rest
of the library (streaming, export, evaluation, recording) uses these methods only and never asks for
a class. A new mixer or block is therefore a file in this folder, a branch in ``build.py`` and its
options in ``surnn.config.model``.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, ClassVar

from torch import Tensor, nn

from surnn.errors import ConfigError


class StreamModule(nn.Module, ABC):
    """A module with a state that it carries from time step to time step.

    The state starts as zeros and is a tensor [B, ...], or a tuple that :func:`select_state` knows.
    """

    @property
    def num_layers(self) -> int:
        """Number of layers; used to name state tensors."""
        return 1

    @abstractmethod
    def init_state(self, batch: int) -> Any:
        """The state of ``batch`` streams before their first time step."""

    @abstractmethod
    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One time step: x [B, features] to [B, width], and the next state."""

    def check_resumable(self) -> None:
        """Raise ConfigError if an endless stream cannot be read in parts of several time steps."""

    def check_resets(self) -> None:
        """Raise ConfigError if a sequence cannot restart inside it (argument ``reset``)."""
        raise ConfigError(
            f"{type(self).__name__} cannot restart inside a sequence, as packed documents need: "
            "leave out --task.documents, or use another --model.kind"
        )

    # ------------------------------------------------------------ the state as named tensors

    def state_names(self, first: int) -> tuple[str, ...]:
        """Names of the tensors of the state, where ``first`` is the number of the first layer.

        Raises:
            ValueError: the state has no fixed size, so one step cannot be exported.
        """
        raise ValueError(
            f"the state of {type(self).__name__} has no fixed size: it streams in Python only"
        )

    def split_state(self, state: Any) -> list[Tensor]:
        """The state as tensors [B, ...], in the order of :meth:`state_names`."""
        return [state]

    def join_state(self, tensors: Sequence[Tensor], t: Tensor) -> Any:
        """The inverse of :meth:`split_state`; ``t`` [B] is the number of time steps so far."""
        return tensors[0]


class Mixer(StreamModule):
    """A causal layer: [B, T, features] to [B, T, width]."""

    dense_recurrence: ClassVar[bool] = False
    """Whether this is a recurrence without gates: every unit updates at every time step. Then
    ``surnn.analysis.record`` records its outputs."""
    outputs_state: ClassVar[bool] = False
    """Whether the output is the first tensor of the state. Then
    ``surnn.analysis.gradient_profile`` follows gradients through the states."""

    handles_resets: ClassVar[bool] = False
    """Whether ``forward`` and ``run`` take ``reset`` [B, T], a bool mask: the sequence restarts
    before a time step where it is True, and nothing earlier is seen there. It is passed only if
    there are resets."""

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Whole sequences, from the zero state; padding follows the first ``lengths`` steps."""

    def check_resets(self) -> None:
        if not self.handles_resets:
            super().check_resets()

    def run(self, x: Tensor, state: Any, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        """Several time steps [B, T, features] of a stream: outputs, and the state after them.

        With ``lengths``, each stream's state is the one after that many time steps.
        """
        raise TypeError(
            f"{type(self).__name__} takes whole sequences or single steps, not parts of a sequence"
        )

    def check_resumable(self) -> None:
        if type(self).run is Mixer.run:
            raise ConfigError(
                f"{type(self).__name__} cannot continue from a state: use whole windows"
            )


class Block(StreamModule):
    """Part of a model, with the time first: [T, B, features] to [T, B, width]."""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: Any = None,
        reset: Tensor | None = None,
    ) -> Any:
        """Outputs; with a ``state``, outputs and the state after x (or after ``lengths``).

        Where ``reset`` [T, B] is True, a sequence restarts before the time step.
        """


@singledispatch
def select_state(state: Any, rows: Tensor) -> Any:
    """Select the streams ``rows`` from a batch, in that order.

    The default is a tensor with the batch first. Every other class of states registers its own.
    """
    return state[rows]


def select_clock(t: Tensor, rows: Tensor) -> Tensor:
    """The same for a clock, which is a scalar if all streams share it."""
    return t if t.dim() == 0 else t[rows]
