"""Language models for Hugging Face's ``transformers``: its ``generate``, its Trainer, its files.

::

    surnn export RUN --to hf --out FOLDER       # a trained run as a Hugging Face folder

    import surnn.hf                             # registers surnn's models with the Auto classes
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)

Needs ``pip install 'surnn[hf]'``. Instead of ``import surnn.hf``, ``trust_remote_code=True`` works
too: a file in the folder then imports it.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import transformers
from torch import Tensor, nn
from transformers.utils import ModelOutput

from surnn.data.text_files import read_text
from surnn.runs.folder import RunError
from surnn.runs.loading import Trained
from surnn.tasks.language import Language

from .export.finite import check_finite
from .hf_base import State, SuRNNConfig, SuRNNPreTrainedModel


@dataclass
class SuRNNOutput(ModelOutput):
    """The output of surnn's models."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    state: State | None = None
    hidden_states: tuple[Tensor, ...] | None = None


class SuRNNForCausalLM(SuRNNPreTrainedModel, transformers.GenerationMixin):
    """A :class:`~surnn.models.model.SequenceModel` that predicts the next token.

    Padding, on either side, changes neither states nor clocks: each prompt of a batch continues as
    it does alone, also if prompts differ in length.
    """

    def __init__(self, config: SuRNNConfig) -> None:
        super().__init__(config)
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # it has a state instead of keys and values

    def _reorder_cache(self, state: State, beam_idx: Tensor) -> State:
        return state.select(beam_idx)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        state: State | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        return_dict: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        inputs_embeds: Tensor | None = None,
        **ignored: Any,
    ) -> SuRNNOutput | tuple:
        """Scores [B, T, vocab_size] of the token that follows each token.

        Args:
            input_ids: [B, T].
            attention_mask: [B, T] or longer; the last T columns count. 0 marks padding.
            state: the state after all earlier tokens; None starts a new stream.
            labels: [B, T], usually ``input_ids``: this method shifts them. -100 is ignored.
            use_cache: return the state after the last token.
            logits_to_keep: return scores of this many last tokens; 0 means all.
            return_dict: False returns a plain tuple.
            output_hidden_states: return embeddings, the outputs of each block but the last, and
                the normalised outputs of the last block, each [B, T, features].
            output_attentions: not supported; True raises ValueError.
            inputs_embeds: [B, T, width], in place of ``input_ids``.
            **ignored: other arguments that Hugging Face passes to all models, such as positions.
        """
        self._refuse_attentions(output_attentions)
        encoding = self.encode(
            input_ids, inputs_embeds, attention_mask, state, keep_state=bool(use_cache),
            keep_hidden=self._asks_for("output_hidden_states", output_hidden_states),
        )  # fmt: skip
        count = 0 if labels is not None else logits_to_keep  # a loss needs all scores
        logits = self.model.head(encoding.last[:, -count:])
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits, labels=labels, vocab_size=self.config.vocab_size,
                num_items_in_batch=ignored.get("num_items_in_batch"),
            )  # fmt: skip
        output = SuRNNOutput(loss, logits[:, -logits_to_keep:], encoding.state, encoding.hidden)
        return output.to_tuple() if return_dict is False else output


class SuRNNForSequenceClassification(SuRNNPreTrainedModel):
    """One of ``num_labels`` classes, or as many numbers, for each sequence.

    ``score`` reads the output at the last token, or the mean over tokens, as the model's option
    ``pool`` says. Weights of a :class:`SuRNNForCausalLM` can be loaded; its readout is left out.

    Args:
        config: the model's options; ``num_labels`` and ``problem_type`` as in transformers.
    """

    _keys_to_ignore_on_load_unexpected = [r"model\.head\."]  # noqa: RUF012 (transformers' type)

    def __init__(self, config: SuRNNConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels or 2  # as in transformers
        self.model.head = nn.Identity()
        self.score = nn.Linear(self.model.width, self.num_labels, bias=False)
        self.post_init()

    def _readouts(self) -> dict[str, nn.Linear]:
        return {"score": self.score}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        inputs_embeds: Tensor | None = None,
        **ignored: Any,
    ) -> SuRNNOutput | tuple:
        """Scores [B, num_labels].

        Args:
            input_ids: [B, T].
            attention_mask: [B, T]; 0 marks padding, on either side.
            labels: [B] classes; see ``problem_type`` for other kinds.
            return_dict: False returns a plain tuple.
            output_hidden_states: as in :class:`SuRNNForCausalLM`.
            output_attentions: not supported; True raises ValueError.
            inputs_embeds: [B, T, width], in place of ``input_ids``.
            **ignored: other arguments that Hugging Face passes to all models.
        """
        self._refuse_attentions(output_attentions)
        keep = self._asks_for("output_hidden_states", output_hidden_states)
        encoding = self.encode(input_ids, inputs_embeds, attention_mask, keep_hidden=keep)
        logits = self.score(self._pool(encoding.last, attention_mask))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        output = SuRNNOutput(loss, logits, None, encoding.hidden)
        return output.to_tuple() if return_dict is False else output

    def _pool(self, y: Tensor, mask: Tensor | None) -> Tensor:
        """y [B, T, width] at the last token, or its mean over tokens."""
        if mask is None:
            return y[:, -1] if self.model.pool == "last" else y.mean(1)
        inside = mask != 0
        if self.model.pool == "mean":
            weights = inside.unsqueeze(-1).to(y.dtype)
            return (y * weights).sum(1) / weights.sum(1)
        last = inside.shape[1] - 1 - inside.flip(1).int().argmax(1)
        return y[range(len(y)), last]


transformers.AutoConfig.register(SuRNNConfig.model_type, SuRNNConfig)
transformers.AutoModelForCausalLM.register(SuRNNConfig, SuRNNForCausalLM)
transformers.AutoModelForSequenceClassification.register(
    SuRNNConfig, SuRNNForSequenceClassification
)


def to_folder(trained: Trained, run: Path, folder: Path) -> None:
    """Write a trained language model as a Hugging Face folder.

    Args:
        trained: the result of ``surnn.load(run)``.
        run: the run's folder, which holds its tokenizer.
        folder: the folder to write.
    """
    task = trained.task
    if not isinstance(task, Language):
        raise RunError(
            f"{run} was trained on {task.name}, which is not text; expected the run of a language "
            "model: enwik8, wikitext103, wikitext2 or text_file"
        )
    check_finite(trained.model)
    tokenizer = tokenizer_of(run, task.vocabulary_size)
    config = SuRNNConfig(
        task.vocabulary_size, task.steps, asdict(trained.config.model), asdict(trained.config.gate),
        bos_token_id=tokenizer.eos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    model = SuRNNForCausalLM(config)
    model.model.load_state_dict(trained.model.state_dict())
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tokenizer_of(run: Path, vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """The tokenizer of a run. Bytes are their own tokens; byte 0 ends texts and pads them."""
    import tokenizers  # noqa: PLC0415 (transformers brings it)

    from surnn.data.tokens import END, byte_letters, load  # noqa: PLC0415

    if vocabulary != 256:
        try:
            text = read_text(run / "tokenizer.json")
        except OSError as error:
            raise RunError(f"the tokens of {run} cannot be read: {error}; restore it") from error
        coder, end = load(text, vocabulary), END
    else:
        # Special tokens are searched in the raw text. So byte 0 is spelled as itself, not as
        # GPT-2's letter for it, which is a letter of Latvian.
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
