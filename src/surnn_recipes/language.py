"""Language models: several kinds on enwik8, of about 44M parameters each, on WikiText-2, of about
32M, and the paper's Table 4.

On enwik8 all have 512 features between blocks, 64 windows of 1024 bytes per step, and the same
learning-rate schedule; with ``--budget`` they are compared at equal time.

On WikiText-2 all read the words in the published files in 64 streams and carry their state, which
for attention is the last 255 time steps. They have the same 512 features, dropout, schedule and
mean of weights. Two million words are few: the options against over-fitting are those of the
literature, untried.

WikiText-103's rows have the sizes that the paper states, with tied embeddings for GPT-2's 50,257
tokens. The number of parameters differs from the printed one, which no choice of tokens and heads
gives. The Transformer has a wider feed-forward network, so that it is not the smaller model. The
paper trains with Adamax, we with AdamW at the same rates.
"""

from dataclasses import replace

from surnn.config import InputGateConfig, ModelConfig, RhythmConfig, RunConfig, TrainConfig
from surnn.tasks.enwik8 import Enwik8
from surnn.tasks.wikitext import WikiText2Words, WikiText103

from .base import DROPOUT, epochs, recipe, with_compile_and_graph

TABLE = "Table 4"

# ---------------------------------------------------------------------------- enwik8

BYTES = ModelConfig(
    layers=14, width=512, heads=8, block="feedforward", feedforward=2208, norm="rms",
    tied_embedding=True, convolution=4, ungated_layers=4, max_rate=0.6,
)  # fmt: skip
"""Heads of 64 units. The first layers read every byte; the others update at few time steps."""
CLOCK = RhythmConfig(rate=0.15, target_rate=0.15, surrogate="triangle", slope=2.0)
"""One rhythm per head."""
SELECTIVE = InputGateConfig(rate=0.2, target_rate=0.2)
"""One gate per head that depends on the input."""
BRIEF = TrainConfig(
    steps=8000, batch=64, learning_rate=2e-3, weight_decay=0.05, warmup=200, hold=0.0,
    evaluate_every=500, evaluation_batches=8, checkpoint_every=2000, precision="bfloat16",
    rate_penalty=0.02,
)  # fmt: skip
"""Half a billion bytes, almost six epochs, unless a budget ends it."""


def replace_model(config: RunConfig, **options: float) -> RunConfig:
    """The configuration with other options of its model."""
    return replace(config, model=replace(config.model, **options))


@recipe()
def enwik8_sugru() -> RunConfig:
    """Bytes of Wikipedia, 44M parameters, clock gates."""
    return with_compile_and_graph(RunConfig(Enwik8(), BYTES, CLOCK, BRIEF))


@recipe()
def enwik8_sugru_input() -> RunConfig:
    """The same with gates that depend on the input."""
    train = replace(BRIEF, anneal=(0.5, 0.75), rate_penalty=0.1)
    return with_compile_and_graph(
        RunConfig(Enwik8(), replace(BYTES, max_rate=0.9), SELECTIVE, train)
    )


@recipe()
def enwik8_hybrid() -> RunConfig:
    """The same with clock gates, and attention after every second block."""
    model = replace(BYTES, layers=12, attention_every=2, attention_heads=8, dropout=0.1)
    return with_compile_and_graph(RunConfig(Enwik8(), model, CLOCK, BRIEF))


@recipe()
def enwik8_transformer() -> RunConfig:
    """The same with attention only."""
    sizes = {"heads": 8, "feedforward": 2048, "convolution": 1, "dropout": 0.1}
    return enwik8_sugru().with_model("transformer", **sizes)


@recipe()
def enwik8_transformer_convolution() -> RunConfig:
    """The Transformer with the hybrid's convolutions over four bytes."""
    return replace_model(enwik8_transformer(), convolution=4)


@recipe()
def enwik8_hybrid_plain() -> RunConfig:
    """The hybrid without convolutions, as the Transformer."""
    return replace_model(enwik8_hybrid(), convolution=1)


@recipe()
def enwik8_sugru_dropout() -> RunConfig:
    """Clock gates without attention, with the dropout of the hybrid and the Transformer."""
    return replace_model(enwik8_sugru(), dropout=0.1)


@recipe()
def enwik8_gru() -> RunConfig:
    """The same with GRUs (cuDNN, in bfloat16), dense, a state as large as ours."""
    layers = {"layers": 12, "feedforward": 2048, "convolution": 1, "half_state": True}
    config = enwik8_sugru().with_model("gru", **layers)
    return replace(config, train=replace(config.train, compile=False))


# ---------------------------------------------------------------------------- WikiText-2

WORDS = replace(
    BYTES, **DROPOUT | {"dropout": 0.4}, layers=6, feedforward=1536, ungated_layers=1,
    input_dropout=0.1,
)  # fmt: skip
"""More than half of the parameters are the embedding of 33,278 words, which is also the readout."""
MEMORY = 256
"""Time steps that attention sees, twice those of a window."""
STREAMS, WINDOWS = 64, 254
"""Streams in a batch, and the windows of 128 words that each of them has."""


@recipe()
def wikitext2_sugru() -> RunConfig:
    """WikiText-2 word by word, 31.8M parameters, clock gates."""
    train = epochs(
        60, STREAMS * WINDOWS, STREAMS, weight_decay=0.1, weight_ema=0.999, rate_penalty=0.02,
        evaluate_every=4 * WINDOWS, evaluation_batch=10, cuda_graph=True,
    )  # fmt: skip
    return RunConfig(WikiText2Words(), WORDS, CLOCK, train)


@recipe()
def wikitext2_hybrid() -> RunConfig:
    """The same with smaller feed-forward networks, and attention after every second block."""
    attention = {"attention_every": 2, "attention_heads": 8, "window": MEMORY}
    config = wikitext2_sugru()
    return replace(config, model=replace(config.model, feedforward=1024, **attention))


@recipe()
def wikitext2_transformer() -> RunConfig:
    """The same with attention only, at half the learning rate."""
    config = wikitext2_sugru().with_model("transformer", heads=8, feedforward=1408, window=MEMORY)
    return replace(config, train=replace(config.train, learning_rate=1e-3))


@recipe()
def wikitext2_lstm() -> RunConfig:
    """Four layers of LSTMs (cuDNN, in bfloat16) instead of six."""
    return wikitext2_sugru().with_model("lstm", layers=4, half_state=True)


# ---------------------------------------------------------------------------- WikiText-103

PAPER = ModelConfig(
    layers=16, width=300, heads=1, block="feedforward", feedforward=2100, dropout=0.1,
    tied_embedding=True,
)  # fmt: skip
"""One dense head with one gate per unit, as in the paper."""
EPOCHS = TrainConfig(
    steps=200 * 3600, batch=128, learning_rate=5e-4, warmup=1000, hold=0.0, final=0.0,
    evaluate_every=3600, checkpoint_every=3600, precision="bfloat16",
)  # fmt: skip
"""200 epochs of about 118 million tokens."""


def wikitext(slope: float = 1.0, **model: int) -> RunConfig:
    """A row of the table, with other sizes if given."""
    gate = RhythmConfig(rate=0.5, slope=slope)
    return RunConfig(WikiText103(context=256), replace(PAPER, **model), gate, EPOCHS)


@recipe(TABLE, "suGRU", 19.20)
def wikitext103_sugru() -> RunConfig:
    """WikiText-103, 16 layers of 300: 44.6M parameters, 44.86M in the paper."""
    return wikitext()


@recipe(TABLE, "suGRU, k=5", 21.53)
def wikitext103_sugru_slope_5() -> RunConfig:
    """The same with a steeper surrogate, which may be the paper's k."""
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
    return wikitext().with_model("transformer", heads=10, feedforward=2464)


@recipe()
def wikitext103_gru() -> RunConfig:
    """GRUs (cuDNN): 44.0M parameters."""
    return wikitext().with_model("gru")
