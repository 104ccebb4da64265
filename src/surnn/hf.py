"""Language models for Hugging Face's ``transformers``: its ``generate``, its Trainer, its files.

::

    surnn export RUN --to hf --out FOLDER       # a trained run as a folder of Hugging Face's

    import surnn.hf                             # makes the Auto classes know our models
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)

Needs ``pip install 'surnn[hf]'``. Without ``import surnn.hf``, ``trust_remote_code=True`` does the
same, by a file in the folder that imports it.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.utils import ModelOutput

from .baselines.attention import Remembered
from .config import GateConfig, ModelConfig
from .models import SequenceModel, StreamState
from .runs import RunError
from .state import SuState
from .tasks.base import Output, Tokens
from .tasks.language import Language
from .trained import Trained

CODE = "modeling_surnn"


class SuRNNConfig(transformers.PreTrainedConfig):
    """Sizes and kinds, as :class:`~surnn.config.ModelConfig` and :class:`~surnn.config.GateConfig`
    have them.

    Args:
        vocab_size: tokens.
        context: length that clocks are made for.
        model: fields of ``ModelConfig``.
        gate: fields of ``GateConfig``.
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
        self.model = _plain(ModelConfig(**_tuples({"block": "feedforward", **(model or {})})))
        self.gate = _plain(GateConfig(**(gate or {})))
        self.hidden_size = self.model["width"]
        self.num_hidden_layers = self.model["layers"]
        super().__init__(**options)

    def save_pretrained(self, save_directory: str | os.PathLike, *more: Any, **options: Any) -> Any:
        """Models save their configuration, so this file is beside it wherever one is saved."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        names = {"AutoConfig": "SuRNNConfig", "AutoModelForCausalLM": "SuRNNForCausalLM"}
        imported = f"from surnn.hf import {', '.join(names.values())}  # pip install 'surnn[hf]'\n"
        (folder / f"{CODE}.py").write_text(imported)
        self.auto_map = {auto: f"{CODE}.{name}" for auto, name in names.items()}
        return super().save_pretrained(save_directory, *more, **options)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Not to be copied into folders, as code that came from one would be: it is surnn's."""


class State:
    """The state after some tokens: hidden values and clocks of all layers, ``h`` and ``t``.

    As the output ``state`` of a model, which goes on from it if it is given as the input ``state``.
    """

    def __init__(self, stream: StreamState) -> None:
        self.stream = stream

    def select(self, rows: Tensor) -> "State":
        """The state of these sequences of the batch, in this order; beam search asks for it."""
        layers = tuple(_selected(layer, rows) for layer in self.stream.layers)
        return State(self.stream._replace(layers=layers, total=self.stream.total[rows]))


@dataclass
class SuRNNOutput(ModelOutput):
    """Of :class:`SuRNNForCausalLM`."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: State | None = None


class SuRNNForCausalLM(transformers.PreTrainedModel, transformers.GenerationMixin):
    """A :class:`~surnn.models.SequenceModel` that predicts the next token.

    Padding, on either side, moves neither states nor clocks: a batch of prompts of unequal lengths
    goes on as each of them does alone.
    """

    config_class = SuRNNConfig  # type: ignore[assignment]
    base_model_prefix = "model"
    _is_stateful = True

    def __init__(self, config: SuRNNConfig) -> None:
        super().__init__(config)
        tokens = config.vocab_size
        self.model = SequenceModel(
            ModelConfig(**_tuples(config.model)),
            GateConfig(**config.gate),
            Tokens(tokens),
            Output(tokens, "step"),
            config.context,
        )
        self.post_init()

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """As of :class:`SuRNNConfig`."""

    def _init_weights(self, module: Any) -> None:
        """Layers have drawn their own."""

    def get_input_embeddings(self) -> Any:
        return self.model.encoder

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # it has a state, not keys and values

    def _reorder_cache(self, state: State, beam_idx: Tensor) -> State:
        return state.select(beam_idx)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **ignored: Any,
    ) -> SuRNNOutput | tuple:
        """Scores [B, T, vocab_size] of what follows each token.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T] or longer, of which the last T count: 0 is padding, not read.
            state: of all tokens before; None begins anew.
            labels: [B, T], commonly ``input_ids``: they are shifted here; -100 is left out.
            use_cache: give the state after the last token.
            logits_to_keep: of so many last steps only; 0 is all.
            return_dict: False for a plain tuple.
            output_hidden_states: refused if True, as ``output_attentions``: there are none.
            output_attentions: see above.
            **ignored: what Hugging Face gives to all models, positions for example.
        """
        self._refuse("output_hidden_states", output_hidden_states)
        self._refuse("output_attentions", output_attentions)
        steps = input_ids.shape[1]
        order = lengths = None
        if attention_mask is not None and not (mask := attention_mask[:, -steps:] != 0).all():
            order, lengths = torch.argsort((~mask).long(), dim=1, stable=True), mask.sum(1)
            if not lengths.all():
                raise ValueError("a sequence of the batch is nothing but padding; leave it out")
            input_ids = input_ids.gather(1, order)
        if state is None and not use_cache:
            logits = self.model(input_ids, lengths)
        elif steps == 1:
            begun = self._begun(state, input_ids)
            logits, after = self.model.step(input_ids[:, 0], begun)
            logits, state = logits.unsqueeze(1), State(after)
        else:
            logits, after = self.model(input_ids, lengths, self._begun(state, input_ids))
            state = State(after)
        if order is not None:  # back to where they stood
            back = order.argsort(1).unsqueeze(-1)
            logits = logits.gather(1, back.expand(-1, -1, logits.shape[-1]))
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size,
                num_items_in_batch=ignored.get("num_items_in_batch"),
            )  # fmt: skip
        found = SuRNNOutput(loss, logits[:, -logits_to_keep:], state if use_cache else None)
        return found.to_tuple() if return_dict is False else found

    def _refuse(self, name: str, wanted: bool | None) -> None:
        if getattr(self.config, name, False) if wanted is None else wanted:
            raise ValueError(
                f"{name}=True: {type(self).__name__} gives none; leave it out. Outputs of a block, "
                "[T, B, width], are had by a hook: model.model.blocks[0].register_forward_hook(...)"
            )

    def _begun(self, state: State | None, tokens: Tensor) -> StreamState:
        return self.model.init_state(len(tokens)) if state is None else state.stream


transformers.AutoConfig.register(SuRNNConfig.model_type, SuRNNConfig)
transformers.AutoModelForCausalLM.register(SuRNNConfig, SuRNNForCausalLM)


def to_folder(found: Trained, run: Path, folder: Path) -> None:
    """Write a trained language model as a folder of Hugging Face's.

    Args:
        found: what ``surnn.load(run)`` gives.
        run: its folder, which has its tokenizer.
        folder: where to.
    """
    task = found.task
    if not isinstance(task, Language):
        raise RunError(
            f"{run} was trained on {task.name}, which is no text; expected a run of a language "
            "model: enwik8, wikitext103, wikitext2 or text_file"
        )
    tokenizer = tokenizer_of(run, task.vocabulary_size)
    config = SuRNNConfig(
        task.vocabulary_size, task.steps, asdict(found.config.model), asdict(found.config.gate),
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = SuRNNForCausalLM(config)
    model.model.load_state_dict(found.model.state_dict())
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tokenizer_of(run: Path, vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """Of a run; bytes are their own tokens, and a byte of 0 ends and pads."""
    import tokenizers  # noqa: PLC0415 (transformers brings it)

    from .data.tokens import END, byte_letters, load  # noqa: PLC0415

    if vocabulary != 256:
        coder, end = load((run / "tokenizer.json").read_text(encoding="utf-8"), vocabulary), END
    else:
        # A byte of 0 is spelled as itself, not as GPT-2's letter for it, which is one of Latvian's:
        # special tokens are looked for in texts as they stand.
        end = "\0"
        letters = {letter if byte else end: byte for letter, byte in byte_letters().items()}
        coder = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=letters, merges=[]))
        coder.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(  # type: ignore[assignment]
            add_prefix_space=False, use_regex=False
        )
        coder.decoder = tokenizers.decoders.ByteLevel()  # type: ignore[assignment]
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=coder, bos_token=end, eos_token=end, pad_token=end, padding_side="left",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


# ---------------------------------------------------------------------------- helpers


def _plain(config: Any) -> dict[str, Any]:
    """As JSON has it: tuples are lists there."""
    return json.loads(json.dumps(asdict(config)))


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


def _selected(layer: Any, rows: Tensor) -> Any:
    """Sequences of a layer's state."""
    if isinstance(layer, SuState):
        gates = tuple(memory[rows] for memory in layer.gates)
        return SuState(layer.cell[:, :, rows], _clock(layer.t, rows), gates)
    if isinstance(layer, Remembered):
        return Remembered(layer.keys[rows], layer.values[rows], _clock(layer.t, rows))
    if isinstance(layer, tuple):  # torch's own recurrent layers
        return tuple(part[:, rows] for part in layer)
    return layer[rows]


def _clock(t: Tensor, rows: Tensor) -> Tensor:
    return t if t.dim() == 0 else t[rows]
