"""How a model listens: from a microphone's sound to the words that it hears."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sound:
    """What a program needs to run a model of log-mel frames on a microphone.

    A frame is (ln(power + 1e-6) - mean) / spread of the 40 bands of ``surnn.data.speech``, 50 times
    a second. A word is detected when its probability, averaged over frames, rises over a threshold.
    """

    words: tuple[str, ...]
    """Names of the model's classes."""
    mean: float
    spread: float
    nothing: tuple[int, ...] = (0,)
    """Classes that are no words, such as silence."""
    average: int = 1
    """Frames over which probabilities are averaged."""
    pause: int = 0
    """Frames that a word's average must stay below the threshold before it is detected again."""
    clip: int = 0
    """Frames of a clip, for models that answer at its end; 0: they answer at each frame."""
    threshold: float = 0.5
