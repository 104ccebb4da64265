"""Language models: several kinds on enwik8, of about 44M parameters each, and the paper's Table 4.

On enwik8 all have 512 features between blocks, read windows of 1024 bytes, 64 to an update, and
warm up and decay alike; with ``--budget`` they differ in what they learn in the same time.

WikiText-103's rows are of the sizes that the paper states, with tied embeddings for GPT-2's 50,257
tokens; what that makes in parameters is not what it prints, as no choice of tokens and heads does.
The Transformer has a wider feed-forward network, so as not to be the smaller one. The paper trains
by Adamax, we by AdamW, at its rates.
"""

from dataclasses import replace

from ..config import GateConfig, ModelConfig, RunConfig, TrainConfig
from ..tasks.enwik8 import Enwik8
from ..tasks.wikitext import WikiText103
from .base import at_once, recipe

TABLE = "Table 4"

# ---------------------------------------------------------------------------- enwik8

BYTES = ModelConfig(
    layers=14, width=512, heads=8, block="feedforward", feedforward=2208, norm="rms",
    tied_embedding=True, convolution=4, open_layers=4, max_rate=0.6,
)  # fmt: skip
"""Heads of 64 units. The first layers see every byte and tell the others, which update seldom."""
CLOCK = GateConfig(rate=0.15, target_rate=0.15, surrogate="triangle", slope=2.0)
"""A rhythm for each head."""
SELECTIVE = GateConfig("input", rate=0.2, target_rate=0.2)
"""Each head reads from the input whether to update."""
BRIEF = TrainConfig(
    steps=8000, batch=64, learning_rate=2e-3, weight_decay=0.05, warmup=200, hold=0.0,
    evaluate_every=500, evaluation_batches=8, checkpoint_every=2000, precision="bfloat16",
    rate_penalty=0.02,
)  # fmt: skip
"""Half a billion bytes, if there is time for them: almost six epochs."""


@recipe()
def enwik8_sugru() -> RunConfig:
    """Bytes of Wikipedia, 44M parameters, clock gates."""
    return at_once(RunConfig(Enwik8(), BYTES, CLOCK, BRIEF))


@recipe()
def enwik8_sugru_input() -> RunConfig:
    """The same with gates that see the input."""
    train = replace(BRIEF, anneal=(0.5, 0.75), rate_penalty=0.1)
    return at_once(RunConfig(Enwik8(), replace(BYTES, max_rate=0.9), SELECTIVE, train))


@recipe()
def enwik8_hybrid() -> RunConfig:
    """The same with clock gates, and attention after every second block."""
    model = replace(BYTES, layers=12, attention_every=2, attention_heads=8, dropout=0.1)
    return at_once(RunConfig(Enwik8(), model, CLOCK, BRIEF))


@recipe()
def enwik8_transformer() -> RunConfig:
    """The same with attention only."""
    sizes = {"heads": 8, "feedforward": 2048, "convolution": 1, "dropout": 0.1}
    return enwik8_sugru().beside("transformer", **sizes)


@recipe()
def enwik8_gru() -> RunConfig:
    """The same with GRUs (cuDNN, in bfloat16), dense, a state as large as ours."""
    layers = {"layers": 12, "feedforward": 2048, "convolution": 1, "half_state": True}
    config = enwik8_sugru().beside("gru", **layers)
    return replace(config, train=replace(config.train, compile=False))


# ---------------------------------------------------------------------------- WikiText-103

PAPER = ModelConfig(
    layers=16, width=300, heads=1, block="feedforward", feedforward=2100, dropout=0.1,
    tied_embedding=True,
)  # fmt: skip
"""One dense head with a gate for each unit, as the paper has it."""
EPOCHS = TrainConfig(
    steps=200 * 3600, batch=128, learning_rate=5e-4, warmup=1000, hold=0.0, final=0.0,
    evaluate_every=3600, checkpoint_every=3600, precision="bfloat16",
)  # fmt: skip
"""200 epochs of about 118 million tokens."""


def wikitext(slope: float = 1.0, **model: int) -> RunConfig:
    """A row of the table, with other sizes if need be."""
    gate = GateConfig(rate=0.5, slope=slope)
    return RunConfig(WikiText103(context=256), replace(PAPER, **model), gate, EPOCHS)


@recipe(TABLE, "suGRU", 19.20)
def wikitext103_sugru() -> RunConfig:
    """WikiText-103, 16 layers of 300: 44.6M parameters, 44.86M in the paper."""
    return wikitext()


@recipe(TABLE, "suGRU, k=5", 21.53)
def wikitext103_sugru_slope_5() -> RunConfig:
    """The same with a steeper surrogate, which may be what k is."""
    return wikitext(slope=5.0)


@recipe(TABLE, "suGRU(100M)", 18.29)
def wikitext103_sugru_large() -> RunConfig:
    """16 layers of 512: 85.6M parameters, 88.98M in the paper."""
    return wikitext(width=512, feedforward=2048)


@recipe(TABLE, "Hybrid-GRU", 18.03)
def wikitext103_hybrid() -> RunConfig:
    """With attention after every second block: 47.5M parameters, 48.92M in the paper."""
    return wikitext(attention_every=2, attention_heads=10)


@recipe(TABLE, "Transformer", 18.44)
def wikitext103_transformer() -> RunConfig:
    """Attention only, a wider feed-forward network: 44.6M parameters, 44.65M in the paper."""
    return wikitext().beside("transformer", heads=10, feedforward=2464)


@recipe()
def wikitext103_gru() -> RunConfig:
    """GRUs (cuDNN): 44.0M parameters."""
    return wikitext().beside("gru")
