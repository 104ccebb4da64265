"""The layout of the event scan in pure PyTorch: event lists as packed rows.

Block 0 holds the initial states, block k >= 1 the k-th event of every list that has one. Heads
are sorted by their longest list and, inside a head, sequences by theirs, so block k's rows are
always a prefix ``[:heads[k], :sequences[k]]`` of block k-1's. This is PackedSequence's idea with
events in place of tokens: memory follows the number of events, not the longest list.
"""

from functools import cached_property

import torch
from torch import Tensor

from ..contract import EventList, event_list, open_heads


class EventPlan:
    """The packed layout for a gate [T, b, N, m], B sequences, and their resets [T, B]."""

    def __init__(self, gate: Tensor, batch: int, reset: Tensor | None = None) -> None:
        self.steps, self.gate_batch, self.n_heads = gate.shape[:3]
        self.batch = batch
        self.shared = self.gate_batch == 1
        self.is_open = open_heads(gate, reset)
        self.events: EventList = event_list(self.is_open)
        count = self.events.count
        device = count.device

        per_head = count.amax(0)
        self.head_order = per_head.argsort(descending=True, stable=True)
        self.head_rank = self.head_order.argsort()
        event = torch.arange(self.events.time.shape[0], device=device)[:, None]
        heads = (per_head > event).sum(1)
        if self.shared:
            order = torch.arange(batch, device=device)
            self.seq_order = order[:, None].expand(batch, self.n_heads)
            self.seq_rank = self.seq_order
            sequences = torch.full_like(heads, batch)
        else:
            self.seq_order = count.argsort(dim=0, descending=True, stable=True)
            self.seq_rank = self.seq_order.argsort(dim=0)
            longest_by_rank = count.gather(0, self.seq_order).amax(1)
            sequences = (longest_by_rank > event).sum(1)
        first = torch.tensor([self.n_heads, batch], device=device)
        self._heads = torch.cat((first[:1], heads))
        self._sequences = torch.cat((first[1:], sequences))
        size = self._heads * self._sequences
        self._start = size.cumsum(0) - size
        # Python runs the loop over events, so its bounds are on the host.
        self.heads: list[int] = self._heads.tolist()
        self.sequences: list[int] = self._sequences.tolist()
        self.start: list[int] = self._start.tolist()
        self.rows = self.start[-1] + self.heads[-1] * self.sequences[-1]

    @property
    def blocks(self) -> int:
        """Number of blocks, the initial one included."""
        return len(self.heads)

    def block(self, rows: Tensor, k: int) -> Tensor:
        """Block k of a packed tensor [rows, ...] as a view [heads, sequences, ...]."""
        n, a = self.heads[k], self.sequences[k]
        return rows[self.start[k] : self.start[k] + n * a].unflatten(0, (n, a))

    def row_of(self, number: Tensor) -> Tensor:
        """Packed row of block ``number`` [Q, b, N] for every sequence: [Q, B, N]."""
        first = self._start[number] + self.head_rank * self._sequences[number]
        return first + self.seq_rank

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(block, step, sequence, head) of every packed row; step is -1 in block 0, T if padding.

        Padding exists only with per-sequence lists: rows of a block whose list has ended.
        """
        size = self._heads * self._sequences
        block = torch.arange(self.blocks, device=size.device).repeat_interleave(size)
        offset = torch.arange(self.rows, device=size.device) - self._start[block]
        head = self.head_order[offset // self._sequences[block]]
        sequence = self.seq_order[offset % self._sequences[block], head]
        return block, self._event_step(block - 1, sequence, head), sequence, head

    def _event_step(self, event: Tensor, sequence: Tensor, head: Tensor) -> Tensor:
        """The step of event ``event``, -1 for event -1, T past the end of the list."""
        time = self.events.time
        edge = torch.ones_like(self.events.count)
        padded = torch.cat((-edge[None], time, self.steps * edge[None]))
        return padded[event + 1, 0 if self.shared else sequence, head].long()

    @property
    def event_step(self) -> Tensor:
        """[rows] the step of each packed row's event, -1 in block 0, T in padding."""
        return self._places[1]

    @cached_property
    def source(self) -> Tensor:
        """[rows] which row of a [T * B * N, ...] tensor feeds each packed row.

        Padding points one past the end; block 0 has no source and is not defined.
        """
        _, step, sequence, head = self._places
        flat = (step * self.batch + sequence) * self.n_heads + head
        return flat.clamp_(max=self.steps * self.batch * self.n_heads)

    @cached_property
    def previous(self) -> Tensor:
        """[rows] the packed row of the event before; not defined in block 0."""
        block, _, sequence, head = self._places
        earlier = (block - 1).clamp(min=0)
        first = self._start[earlier] + self.head_rank[head] * self._sequences[earlier]
        return first + self.seq_rank[sequence, head]

    @property
    def head(self) -> Tensor:
        """[rows] the head of each packed row, as an original head index (before sorting)."""
        return self._places[3]

    @cached_property
    def rows_by_head(self) -> list[Tensor]:
        """Packed rows of each head's events (block 0 left out), by original head index."""
        first = self.n_heads * self.batch
        head = self._places[3][first:]
        order = head.argsort(stable=True) + first
        return list(order.split(head.bincount(minlength=self.n_heads).tolist()))

    @cached_property
    def gate_source(self) -> Tensor:
        """[rows] as :attr:`source`, for a [T * b * N, m] gate; padding reads the last row."""
        _, step, sequence, head = self._places
        listed = 0 if self.shared else sequence
        flat = (step * self.gate_batch + listed) * self.n_heads + head
        return flat.clamp_(max=self.steps * self.gate_batch * self.n_heads - 1)

    @cached_property
    def initial_source(self) -> Tensor:
        """[N * B] which row of a [B * N, ...] state each row of block 0 is."""
        _, _, sequence, head = (place[: self.n_heads * self.batch] for place in self._places)
        return sequence * self.n_heads + head

    def closed_after(self, lengths: Tensor | None) -> Tensor:
        """[rows] closed steps between a row's event and the next one, or the sequence's end."""
        block, step, sequence, head = self._places
        following = self._event_step(block, sequence, head)
        if lengths is not None:
            following = torch.minimum(following, lengths[sequence])
        return (following - step - 1).clamp_(min=0)
