"""State tracking: the product of a few group elements that are hidden in a long stream of noise."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, permutations
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from .base import Batch, Output, Score, Split, Tokens
from .batching import check_choice
from .copying import IGNORED
from .generated import GeneratedTask, Parts, random_places

EVENT, NOISE, END = range(3)
FIRST_RUNG = 2
"""Elements per sequence in the first training batches, if their number grows."""

Group = Literal["Z2", "S3", "A5", "S5"]


@dataclass(frozen=True)
class StateTracking(GeneratedTask):
    """Products in a permutation group, over rare events in a long stream.

    Input: ``length`` time steps of tokens. Elements of the group stand at distinct random places
    among random noise tokens; the last token asks for the answer. Target: at each element the
    product of all elements so far (a later element multiplies from the right), at the last time
    step the product of all. Other time steps have no loss. Elements are drawn uniformly, the
    identity included. Training batches are generated; validation and test have 1024 fixed
    sequences each.

    The metric is the accuracy at the last time step; the accuracy at the elements is logged too.
    Guessing gives 1 / (size of the group) at the end. A model that reads only the current token is
    right at the first element and guesses at the others (:func:`last_event_accuracy`). Z2 is parity
    and commutes: a sum of the inputs modulo 2 solves it. The others do not commute. A linear
    recurrence with a diagonal matrix cannot track them.

    Args:
        group: ``Z2`` (2 elements), ``S3`` (6), ``A5`` (60), ``S5`` (120).
        length: time steps, the last one included.
        events: group elements per sequence.
        density: group elements as a share of the time steps. None: ``events`` is their number.
        noise: number of different noise tokens.
        growing: number of training batches with fewer elements: 2, then 4, 8, ... up to the full
            number, each for an equal share of these batches.
        ladder: shorter training batches before those of full length, with all elements: each rung
            is a number of batches, of sequences in a batch, and of time steps. The shortest
            sequences, ``events`` + 1 time steps, have no noise.
    """

    group: Group = "S3"
    length: int = 8192
    events: int = 16
    density: float | None = None
    noise: int = 8
    growing: int = 0
    ladder: tuple[tuple[int, int, int], ...] = ()

    name: ClassVar[str] = "state_tracking"
    kinds: ClassVar[tuple[str, ...]] = ("event", "noise", "end")
    fixed_size: ClassVar[int] = 1024
    fixed_seeds: ClassVar[dict[Split, int]] = {"valid": 2001, "test": 2002}

    def __post_init__(self) -> None:
        check_choice("group", self.group, Group)
        if self.density is not None and not 0 < self.density < 1:
            raise ValueError(f"density is {self.density}; expected a share between 0 and 1")
        if self.event_count < 1:
            raise ValueError(
                f"there are {self.event_count} elements per sequence; expected at least 1: raise "
                "events, density or length"
            )
        if self.length < self.event_count + 1:
            raise ValueError(
                f"length is {self.length}; expected at least {self.event_count + 1}, room for "
                f"{self.event_count} elements and the last time step"
            )
        if self.noise < 1:
            raise ValueError(f"noise is {self.noise}; expected at least 1 noise token")
        if self.growing < 0:
            raise ValueError(f"growing is {self.growing}; expected 0 or more batches")
        if self.growing and not self._rungs:
            raise ValueError(
                f"{self.event_count} elements cannot grow from {FIRST_RUNG}: use more elements, or "
                "growing 0"
            )
        if self.ladder and self.growing:
            raise ValueError("growing and ladder both say how training starts: leave one out")
        for rung in self.ladder:
            count, size, length = rung
            if count < 1 or size < 1 or not self.event_count < length <= self.length:
                raise ValueError(
                    f"ladder has {rung}; expected a number of batches, of sequences, and of time "
                    f"steps from {self.event_count + 1} to {self.length}"
                )

    @property
    def event_count(self) -> int:
        """Group elements per sequence."""
        return self.events if self.density is None else round(self.density * self.length)

    @property
    def easy_batches(self) -> int:
        return self.growing + sum(count for count, _, _ in self.ladder)

    def as_tested(self) -> "StateTracking":
        return replace(self, growing=0, ladder=())

    @property
    def input(self) -> Tokens:
        return Tokens(self._order + self.noise + 1)

    @property
    def output(self) -> Output:
        return Output(self._order, "step")

    @property
    def steps(self) -> int:
        return self.length

    @property
    def chance(self) -> float:
        return 1 / self._order

    @property
    def _order(self) -> int:
        return len(multiplication_table(self.group))

    @property
    def _rungs(self) -> list[int]:
        """The smaller numbers of elements that training starts with."""
        rungs, count = [], FIRST_RUNG
        while count < self.event_count:
            rungs.append(count)
            count *= 2
        return rungs

    def batch(self, split: Split, number: int, size: int, seed: int, device: torch.device) -> Batch:
        if split != "train" or number >= self.easy_batches:
            return super().batch(split, number, size, seed, device)
        easier = self.as_tested()
        if self.growing:
            count = self._rungs[number * len(self._rungs) // self.growing]
            easier = replace(easier, events=count, density=None)
        else:
            ends = accumulate(count for count, _, _ in self.ladder)
            rung = bisect_right(tuple(ends), number)
            _, size, length = self.ladder[rung]
            easier = replace(easier, length=length, events=self.event_count, density=None)
        return easier.batch(split, number, size, seed, device)

    def draw(self, split: Split, count: int, random: torch.Generator) -> Parts:
        """Elements and their increasing places, both [B, events], and noise tokens [B, T - 1]."""
        device = random.device
        shape = (count, self.event_count)
        elements = torch.randint(self._order, shape, generator=random, device=device)
        places = random_places(count, self.length - 1, self.event_count, random)
        shape = (count, self.length - 1)
        noise = torch.randint(self.noise, shape, generator=random, device=device)
        return elements, places, noise

    def assemble(self, parts: Parts) -> Batch:
        elements, places, noise = parts
        table = multiplication_table(self.group).to(elements.device)
        products = prefix_products(elements, table)
        x = functional.pad(noise + self._order, (0, 1), value=self._order + self.noise)
        x.scatter_(1, places, elements)
        target = torch.full_like(x, IGNORED)
        target.scatter_(1, places, products)
        target[:, -1] = products[:, -1]
        kinds = torch.full_like(x, NOISE)
        kinds.scatter_(1, places, EVENT)
        kinds[:, -1] = END
        return Batch(x, target, kinds=kinds)

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        flat = prediction.float().flatten(0, 1)
        return functional.cross_entropy(flat, batch.target.flatten(), ignore_index=IGNORED)

    def score(self, prediction: Tensor, batch: Batch) -> Score:
        hits = prediction[:, -1].argmax(-1) == batch.target[:, -1]
        return Score(hits.sum(), torch.tensor(hits.numel(), device=hits.device))

    def details(self, prediction: Tensor, batch: Batch) -> dict[str, Score]:
        target = batch.target[:, :-1]
        asked = target != IGNORED
        hits = asked & (prediction[:, :-1].argmax(-1) == target)
        return {"accuracy at events": Score(hits.sum(), asked.sum())}


def last_event_accuracy(group: Group, events: int) -> float:
    """The accuracy at the elements of a model without memory, which knows only the current one."""
    return (1 + (events - 1) / len(multiplication_table(group))) / events


@lru_cache
def multiplication_table(group: Group) -> Tensor:
    """[n, n]: the number of the element ``a * b``, which applies b first. Element 0 is 1."""
    points = {"Z2": 2, "S3": 3, "A5": 5, "S5": 5}[group]
    elements = [p for p in permutations(range(points)) if group != "A5" or _is_even(p)]
    number = {element: i for i, element in enumerate(elements)}
    return torch.tensor([[number[tuple(a[i] for i in b)] for b in elements] for a in elements])


def _is_even(permutation: tuple[int, ...]) -> bool:
    pairs = [(a, b) for i, a in enumerate(permutation) for b in permutation[i + 1 :]]
    return sum(a > b for a, b in pairs) % 2 == 0


def prefix_products(elements: Tensor, table: Tensor) -> Tensor:
    """[B, K] to [B, K]: products of the first 1, 2, ... K elements, in log2(K) passes."""
    products, distance = elements, 1
    while distance < elements.shape[1]:
        joined = table[products[:, :-distance], products[:, distance:]]
        products = torch.cat([products[:, :distance], joined], 1)
        distance *= 2
    return products
