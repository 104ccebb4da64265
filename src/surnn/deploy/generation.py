"""Text generation, token by token, from the state of a stream.

Every token costs the same, except with attention to all time steps. The module is not named
``generate``, because :mod:`surnn` exports the function of that name.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from surnn.models.model import SequenceModel

from .engine import Engine

Step = Callable[[Tensor], Tensor]
"""Tokens [B] to scores of the next tokens, [B, vocabulary]."""


def generate(
    model: SequenceModel | Engine,
    prompt: Tensor,
    tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
) -> Iterator[Tensor]:
    """Continue ``prompt``: yields one token [B] after another.

    Args:
        model: a model that predicts the next token at each step, or its exported engine, which
            takes one prompt at a time.
        prompt: [B, T] int64, at least one token each.
        tokens: number of tokens to generate.
        temperature: divides the scores before sampling; 0 always takes the best token.
        top_k: sample from this many of the best tokens only.
        top_p: sample from the smallest set of best tokens with this total probability.
        seed: seed of the sampling.

    Example:
        >>> from surnn.config import ModelConfig, RhythmConfig
        >>> from surnn.tasks import Output, Tokens
        >>> shape = ModelConfig(width=32, block="feedforward"), RhythmConfig()
        >>> model = SequenceModel(*shape, Tokens(256), Output(256, "step"), 64)
        >>> text = list(generate(model, torch.tensor([list(b"Once upon")]), 5, seed=1))
        >>> torch.stack(text, 1).shape
        torch.Size([1, 5])
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k is a number of tokens, at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p is a probability above 0, at most 1, got {top_p}")
    if prompt.dim() != 2 or prompt.shape[1] == 0:
        raise ValueError(f"a prompt is [B, T] with T at least 1, got {list(prompt.shape)}")
    choice = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return _generate(model, prompt, tokens, seed, choice)


def _generate(
    model: SequenceModel | Engine, prompt: Tensor, tokens: int, seed: int, choice: dict[str, Any]
) -> Iterator[Tensor]:
    """The generator itself; it is separate so that :func:`generate` checks options at once."""
    start = _start_engine if isinstance(model, Engine) else _start_model
    scores, step = start(model, prompt)  # type: ignore[arg-type]
    generator = torch.Generator(scores.device).manual_seed(seed)
    for remaining in range(tokens, 0, -1):
        token = choose(scores, generator, **choice)
        yield token
        if remaining > 1:
            scores = step(token)


def choose(
    scores: Tensor,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    """One token [B] from scores [B, vocabulary]; options as in :func:`generate`."""
    if temperature == 0:
        return scores.argmax(-1)
    ranked, token = torch.sort(scores.float() / temperature, dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked, token = ranked[:, :top_k], token[:, :top_k]
    probability = ranked.softmax(-1)
    if top_p is not None:  # drop tokens once the better ones reach top_p; the best always stays
        better = probability.cumsum(-1) - probability
        probability = probability.masked_fill(better >= top_p, 0.0)
    rank = torch.multinomial(probability, 1, generator=generator)
    return token.gather(-1, rank).squeeze(-1)


@torch.no_grad()
def _start_model(model: SequenceModel, prompt: Tensor) -> tuple[Tensor, Step]:
    """Scores after the prompt, and the function that takes the next token."""
    was_training = model.training
    device = next(model.parameters()).device
    state = model.init_state(len(prompt))

    def run(tokens: Tensor) -> Tensor:
        nonlocal state
        model.eval()
        try:
            with torch.no_grad():
                if tokens.dim() == 2:
                    scores, state = model(tokens.to(device), state=state)
                    return scores[:, -1]
                scores, state = model.step(tokens, state)
                return scores
        finally:
            model.train(was_training)

    return run(prompt), run


def _start_engine(engine: Engine, prompt: Tensor) -> tuple[Tensor, Step]:
    if len(prompt) != 1:
        raise ValueError(f"the engine takes one prompt at a time, got {len(prompt)}")
    stream = engine.stream()
    scores = torch.from_numpy(stream.run(prompt[0].cpu().numpy())[-1:])
    return scores, lambda token: torch.from_numpy(stream.run(token.cpu().numpy()))
