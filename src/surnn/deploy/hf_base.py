"""The configuration, the state and the common part of surnn's models in ``transformers``."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from surnn.config import ModelConfig, gate_config
from surnn.config.old_keys import upgrade_part
from surnn.models.base import select_state
from surnn.models.build import TiedReadout
from surnn.models.model import SequenceModel, StreamState
from surnn.models.signature import Output, Tokens

CODE = "modeling_surnn"
AUTO_CLASSES = {
    "AutoConfig": "SuRNNConfig",
    "AutoModelForCausalLM": "SuRNNForCausalLM",
    "AutoModelForSequenceClassification": "SuRNNForSequenceClassification",
}


class SuRNNConfig(transformers.PreTrainedConfig):
    """Options of the model and its gates, as in :mod:`surnn.config`.

    Args:
        vocab_size: tokens.
        context: sequence length, in tokens, that the gates are designed for.
        model: fields of ``ModelConfig``.
        gate: ``kind`` and the options of that gate, such as ``{"kind": "rhythm", "rate": 0.1}``.
        **options: those of all of Hugging Face's configurations.
    """

    model_type = "surnn"

    def __init__(
        self,
        vocab_size: int = 256,
        context: int = 1024,
        model: dict[str, Any] | None = None,
        gate: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.vocab_size, self.context = vocab_size, context
        model = {"block": "feedforward", **upgrade_part("model", model or {})}
        gate = {"kind": "rhythm", **upgrade_part("gate", gate or {})}
        self.model = _plain(ModelConfig(**_tuples(model)))
        self.gate = _plain(gate_config(**gate))
        self.hidden_size = self.model["width"]
        self.num_hidden_layers = self.model["layers"]
        super().__init__(**options)

    def save_pretrained(self, save_directory: str | os.PathLike, *more: Any, **options: Any) -> Any:
        """Also write the loader module, because every saved model saves its configuration."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        names = ", ".join(AUTO_CLASSES.values())
        imported = f"from surnn.hf import {names}  # pip install 'surnn[hf]'\n"
        (folder / f"{CODE}.py").write_text(imported)
        self.auto_map = {auto: f"{CODE}.{name}" for auto, name in AUTO_CLASSES.items()}
        return super().save_pretrained(save_directory, *more, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Do nothing: surnn's code is imported, not copied into the folder."""


class State:
    """The state of all layers after some tokens.

    A model returns it as ``state`` and continues from it if called with ``state``.
    """

    def __init__(self, stream: StreamState) -> None:
        self.stream = stream

    def select(self, rows: Tensor) -> "State":
        """The state of these sequences of the batch, in this order, as beam search needs it."""
        return State(select_state(self.stream, rows))


class Encoding(NamedTuple):
    """Outputs of the blocks, the state after them, and lengths."""

    last: Tensor
    """[B, T, width]: outputs of the last block, normalised."""
    hidden: tuple[Tensor, ...] | None
    """Embeddings, outputs of each block but the last, and ``last``; each [B, T, features]."""
    state: State | None
    """The state after the last token of each sequence, if it was asked for."""
    lengths: Tensor | None
    """[B] tokens of each sequence; None: they have no padding."""


class SuRNNPreTrainedModel(transformers.PreTrainedModel):
    """The common part of surnn's models: embeddings, blocks, padding, states, checkpointing.

    Args:
        config: the model's options.
    """

    config_class = SuRNNConfig  # type: ignore[assignment]
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _is_stateful = True

    def __init__(self, config: SuRNNConfig) -> None:
        super().__init__(config)
        tokens = config.vocab_size
        self.gradient_checkpointing = False
        self.model = SequenceModel(
            ModelConfig(**_tuples(config.model)),
            gate_config(**config.gate),
            Tokens(tokens),
            Output(tokens, "step"),
            config.context,
        )

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Do nothing, as in :class:`SuRNNConfig`."""

    # ------------------------------------------------------------ weights

    def _readouts(self) -> dict[str, nn.Linear]:
        """Linear readouts by name: a checkpoint of another task lacks them."""
        head = self.model.head
        return {"model.head": head} if isinstance(head, nn.Linear) else {}

    def _init_weights(self, module: Any) -> None:
        """Initialise a readout. Other layers do it when they are made.

        ``from_pretrained`` makes the model without memory, and calls this for weights that the
        checkpoint lacks. Without it they would be whatever the memory held before.
        """
        if any(module is readout for readout in self._readouts().values()):
            module.reset_parameters()

    @classmethod
    def from_pretrained(cls, *args: Any, output_loading_info: bool = False, **options: Any) -> Any:
        """As in transformers, but only a readout may be missing from the checkpoint."""
        loaded: Any = super().from_pretrained(*args, output_loading_info=True, **options)
        model, info = loaded
        new = tuple(f"{name}." for name in model._readouts())
        missing = sorted(name for name in info["missing_keys"] if not name.startswith(new))
        if missing:
            raise ValueError(
                f"the checkpoint lacks {len(missing)} weights of {cls.__name__}, such as "
                f"{missing[0]}; expected all but {sorted(model._readouts()) or 'none'}: give the "
                "folder of a surnn model, and the configuration that it was saved with"
            )
        return (model, info) if output_loading_info else model

    # ------------------------------------------------------------ embeddings

    def get_input_embeddings(self) -> Any:
        return self.model.encoder

    def set_input_embeddings(self, value: Any) -> None:
        self.model.encoder = value
        if isinstance(self.model.head, TiedReadout):
            self.model.head = TiedReadout(value, Output(value.num_embeddings, "step"))

    def get_output_embeddings(self) -> Any:
        """The readout; None if it is the embedding, or if there is none."""
        return self.model.head if isinstance(self.model.head, nn.Linear) else None

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.model.head = new_embeddings

    def resize_token_embeddings(self, *positions: Any, **options: Any) -> Any:
        """As in transformers: embedding and readout get the new number of tokens."""
        embeddings = super().resize_token_embeddings(*positions, **options)
        tokens = embeddings.num_embeddings
        self.model.inputs = Tokens(tokens)
        self.model.output = replace(self.model.output, size=tokens)
        return embeddings

    # ------------------------------------------------------------ blocks

    def encode(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        *,
        keep_state: bool = False,
        keep_hidden: bool = False,
    ) -> Encoding:
        """Run embeddings and blocks.

        Args:
            input_ids: [B, T] tokens, or None.
            inputs_embeds: [B, T, width] in their place.
            attention_mask: [B, T] or longer; the last T columns count. 0 marks padding.
            state: the state after all earlier tokens; None starts new streams.
            keep_state: return the state after the last token.
            keep_hidden: return the outputs of all blocks.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        x = self.get_input_embeddings()(input_ids) if inputs_embeds is None else inputs_embeds
        order, lengths = _padding_last(attention_mask, x.shape[1])
        if order is not None:
            x = _take(x, order)
        streams = state is not None or keep_state
        stream = self._stream(state, len(x)) if streams else None
        y, hidden, stream = self._run_blocks(x, lengths, stream)
        outputs = [each.transpose(0, 1) for each in ((*hidden, y) if keep_hidden else (y,))]
        if order is not None:  # undo the reordering
            back = order.argsort(1)
            outputs = [_take(each, back) for each in outputs]
        new_state = None if stream is None or not keep_state else State(stream)
        return Encoding(outputs[-1], tuple(outputs) if keep_hidden else None, new_state, lengths)

    def _run_blocks(
        self, x: Tensor, lengths: Tensor | None, stream: StreamState | None
    ) -> tuple[Tensor, list[Tensor], StreamState | None]:
        """x [B, T, features]: outputs of the last block, inputs of all blocks (both time first)."""
        x = self.model.drop_inputs(x.transpose(0, 1))
        hidden, states = [], []
        for number, block in enumerate(self.model.blocks):
            hidden.append(x)
            if stream is None:
                x = self._checkpointed(block)(x, lengths)
            elif len(x) == 1:
                x, new = block.step(x[0], stream.layers[number])  # type: ignore[operator]
                x = x.unsqueeze(0)
                states.append(new)
            else:
                x, new = block(x, lengths, stream.layers[number])
                states.append(new)
        y = x if self.model.norm is None else self.model.norm(x, lengths)
        if stream is not None:
            stream = stream._replace(layers=tuple(states))
        return y, hidden, stream

    def _checkpointed(self, block: nn.Module) -> Callable[..., Any]:
        """``block``, or one that keeps only its input and runs again in the backward pass."""
        if not (self.gradient_checkpointing and self.training and torch.is_grad_enabled()):
            return block
        return lambda *inputs: self._gradient_checkpointing_func(block, *inputs)

    def _stream(self, state: State | None, batch: int) -> StreamState:
        return self.model.init_state(batch) if state is None else state.stream

    def _asks_for(self, name: str, value: bool | None) -> bool:
        """An argument of forward, or its default in the configuration."""
        return bool(getattr(self.config, name, False) if value is None else value)

    def _refuse_attentions(self, value: bool | None) -> None:
        if self._asks_for("output_attentions", value):
            raise ValueError(
                f"output_attentions=True: {type(self).__name__} has none; leave it out"
            )


def _padding_last(mask: Tensor | None, steps: int) -> tuple[Tensor | None, Tensor | None]:
    """The order [B, T] in which padding follows the tokens, and lengths; None without padding."""
    if mask is None or (inside := mask[:, -steps:] != 0).all():
        return None, None
    lengths = inside.sum(1)
    if not lengths.all():
        raise ValueError("a sequence of the batch is only padding; leave it out")
    return torch.argsort((~inside).long(), dim=1, stable=True), lengths


def _take(x: Tensor, order: Tensor) -> Tensor:
    """x [B, T, features] in another order of time steps."""
    return x.gather(1, order.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


def _plain(config: Any) -> dict[str, Any]:
    """As JSON has it: tuples are lists there."""
    return json.loads(json.dumps(asdict(config)))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
