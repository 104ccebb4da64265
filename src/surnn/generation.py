"""Text from a language model, token by token, in the state of a stream: no step costs more than the
one before it (but for attention to all steps).

Not named after its function, which :mod:`surnn` hands out.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .engine import Engine
from .models import SequenceModel

Step = Callable[[Tensor], Tensor]
"""Tokens [B] to scores of those that may follow, [B, vocabulary]."""


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
    """Go on with ``prompt``, one token [B] after another.

    Args:
        model: predicts the next token at each step; or the engine that one was exported to, which
            takes one prompt at a time.
        prompt: [B, T] int64, at least one token each.
        tokens: how many.
        temperature: scores are divided by it before one is drawn; 0 always takes the best.
        top_k: draw from so many of the best only.
        top_p: draw from the fewest of the best that have this probability together.
        seed: of what is drawn.

    Example:
        >>> from surnn.config import GateConfig, ModelConfig
        >>> from surnn.tasks import Output, Tokens
        >>> shape = ModelConfig(width=32, block="feedforward"), GateConfig()
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
    return _generated(model, prompt, tokens, seed, choice)


def _generated(
    model: SequenceModel | Engine, prompt: Tensor, tokens: int, seed: int, choice: dict[str, Any]
) -> Iterator[Tensor]:
    """The tokens; apart, so that what is wrong with the options is said before one is asked for."""
    scores, step = _of_engine(model, prompt) if isinstance(model, Engine) else _of(model, prompt)
    generator = torch.Generator(scores.device).manual_seed(seed)
    for left in range(tokens, 0, -1):
        token = choose(scores, generator, **choice)
        yield token
        if left > 1:
            scores = step(token)


def choose(
    scores: Tensor,
    generator: torch.Generator,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    """One token [B] from scores [B, vocabulary]; options as of :func:`generate`."""
    if temperature == 0:
        return scores.argmax(-1)
    ranked, place = torch.sort(scores.float() / temperature, dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked, place = ranked[:, :top_k], place[:, :top_k]
    share = ranked.softmax(-1)
    if top_p is not None:  # until those before it have enough; the best is always among them
        share = share.masked_fill(share.cumsum(-1) - share >= top_p, 0.0)
    drawn = torch.multinomial(share, 1, generator=generator)
    return place.gather(-1, drawn).squeeze(-1)


@torch.no_grad()
def _of(model: SequenceModel, prompt: Tensor) -> tuple[Tensor, Step]:
    """What may follow the prompt, and what takes the next step."""
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


def _of_engine(engine: Engine, prompt: Tensor) -> tuple[Tensor, Step]:
    if len(prompt) != 1:
        raise ValueError(f"the engine takes one prompt at a time, got {len(prompt)}")
    stream = engine.stream()
    scores = torch.from_numpy(stream.run(prompt[0].cpu().numpy())[-1:])
    return scores, lambda token: torch.from_numpy(stream.run(token.cpu().numpy()))
