"""surnn's layers in stable-baselines3-contrib's ``RecurrentPPO``.

::

    model = RecurrentPPO(
        surnn.integrations.sb3.MlpPolicy, env,
        policy_kwargs={"layer": surnn.SuGRU, "lstm_kwargs": {"gate": surnn.Rhythm(rate=0.2)}},
    )

The states that RecurrentPPO stores are packed: a replay has the clocks of the rollout, and a new
episode starts them again. Needs ``pip install 'surnn[rl]'``.
"""

# The framework need not be installed where types are checked.
# pyright: reportMissingImports=false, reportCallIssue=false

from typing import Any

from torch import Tensor

from surnn.errors import missing_extra
from surnn.nn.layers import SelectiveLayer, SuLSTM

from .packed import PackedPair

try:
    from sb3_contrib.common.recurrent import policies
except ModuleNotFoundError as error:
    raise missing_extra(error, "surnn.integrations.sb3") from error


class SelectivePolicy(policies.RecurrentActorCriticPolicy):
    """A recurrent policy with layers of surnn.

    Args:
        observation_space: as in sb3_contrib.
        action_space: as in sb3_contrib.
        lr_schedule: as in sb3_contrib.
        *positions: as in sb3_contrib.
        layer: the class of the layers.
        lstm_kwargs: options of that class, such as ``gate`` and ``heads``.
        **options: as in sb3_contrib; ``lstm_hidden_size`` and ``n_lstm_layers`` are sizes of the
            layers.
    """

    def __init__(
        self,
        observation_space: Any,
        action_space: Any,
        lr_schedule: Any,
        *positions: Any,
        layer: type[SelectiveLayer] = SuLSTM,
        lstm_kwargs: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, lr_schedule, *positions, **options)
        self.lstm_kwargs = lstm_kwargs or {}
        if self.lstm_kwargs.get("batch_first"):
            raise ValueError("sb3_contrib has the time first; leave out batch_first")
        layers, _, width = self.lstm_hidden_state_shape

        def build() -> PackedPair:
            return PackedPair(layer(self.features_dim, width, layers, **self.lstm_kwargs))

        self.lstm_actor = build()
        if self.lstm_critic is not None:
            self.lstm_critic = build()
        self.lstm_hidden_state_shape = (self.lstm_actor.num_layers, 1, self.lstm_actor.hidden_size)
        self.optimizer = self.optimizer_class(
            self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: Any, episode_starts: Tensor, lstm: Any
    ) -> tuple[Tensor, Any]:
        """One pass over sequences whose episodes start at their first time step, if at all.

        sb3_contrib's own method, which the others take, calls the layer for each time step.
        """
        count = lstm_states[0].shape[1]
        starts = episode_starts.reshape(count, -1).swapaxes(0, 1)
        if starts[1:].any():
            loop = policies.RecurrentActorCriticPolicy._process_sequence
            return loop(features, lstm_states, episode_starts, lstm)
        x = features.reshape(count, -1, lstm.input_size).swapaxes(0, 1)
        alive = (1.0 - starts[0]).view(1, count, 1)
        y, new = lstm(x, tuple(alive * part for part in lstm_states))
        return y.transpose(0, 1).flatten(0, 1), new


class MlpPolicy(SelectivePolicy):
    """For observations that are vectors."""


class CnnPolicy(SelectivePolicy, policies.RecurrentActorCriticCnnPolicy):
    """For observations that are images."""


class MultiInputPolicy(SelectivePolicy, policies.RecurrentMultiInputActorCriticPolicy):
    """For observations that are dictionaries."""
