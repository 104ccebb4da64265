"""The packed form of an event scan, shared by its forward loop, backward loop and gate gradient.

Shapes are those of :mod:`surnn.scan.contract`; packed rows those of :mod:`surnn.scan.events.plan`.
"""

import torch
from torch import Tensor

from surnn.nn.cells import Linearization

from ..contract import ScanOperands, input_projection
from .plan import EventPlan

# Elements of drive processed at a time where many steps or events are processed at once: a few
# times the cache of a CPU, enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 19}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 24
# Above this share of the (step, sequence, head) triples, one dense product is faster than
# gathering rows.
DENSE_SHARE = 1 / 3
# Gathering costs about as much as this many multiplications per head.
GATHERING_COST = 3 << 20


class PackedScan:
    """One scan over events: its plan, its weights in the plan's order, and operands by row.

    ``dtype`` is the dtype of the recurrence.
    """

    def __init__(self, operands: ScanOperands, dtype: torch.dtype) -> None:
        self.operands = operands
        self.cell = operands.cell
        self.dtype = dtype
        self.x, self.weight, self.bias = operands.x, operands.weight, operands.bias
        gate, decay = operands.gate, operands.decay
        self.steps, self.batch = self.x.shape[:2]
        self.heads, self.drives, self.width, _ = self.weight.shape
        self.plan = plan = EventPlan(gate, self.batch, operands.reset)
        places = self.steps * self.batch * self.heads
        self.dense = not self.gathering_pays(plan.rows / places)
        order = plan.head_order
        self.flat_gate = gate.reshape(-1, gate.shape[-1])
        # [N, S*D, D] and its transpose, heads in the plan's order, as are unit and decay.
        self.recurrent = operands.recurrent[order].flatten(1, 2).to(dtype)
        self.recurrent_t = self.recurrent.transpose(1, 2)
        self.unit = operands.unit[:, order].unsqueeze(2).to(dtype)  # [P, N, 1, D]
        self.decay = None if decay is None else decay[order].unsqueeze(1).to(dtype)  # [N, 1, C, D]
        # A carry decays until the next event or the sequence's length.
        self.closed_after = None if decay is None else plan.closed_after(operands.lengths)
        resets = operands.reset is not None
        self.masked = not operands.binary or gate.shape[-1] > 1 or resets
        # Padding (lists that end before others) reads some row that exists, and is undone.
        self.padding = None if plan.shared else plan.event_step == self.steps
        self.readable = plan.source.clamp(0, places - 1)
        # Rows whose sequence is reset before their step: the state before them is zero.
        self.fresh = self._fresh() if resets else None
        self.chunk_elements = CHUNK_ELEMENTS.get(self.x.device.type, CHUNK_ELEMENTS_ELSEWHERE)

    def _fresh(self) -> Tensor:
        """[rows] bool: whether an event's step is a reset; not in block 0 and in padding."""
        assert self.operands.reset is not None
        fresh = self.operands.reset.flatten()[self.readable // self.heads]
        fresh[: self.rows(0).stop] = False
        return fresh if self.padding is None else fresh & ~self.padding

    def cut(self, before: Tensor, rows: slice) -> Tensor:
        """States before the events of ``rows`` (or gradients by them) [r, ...], 0 at resets."""
        if self.fresh is None:
            return before
        fresh = self.fresh[rows].view(-1, *[1] * (before.dim() - 1))
        return torch.where(fresh, 0.0, before)

    # ------------------------------------------------------------ the input projection

    def gathering_pays(self, share: float) -> bool:
        """Whether projecting only a ``share`` of all places, head by head, is faster than all."""
        whole = self.steps * self.batch * self.weight[0].numel()
        return share <= DENSE_SHARE and (1 - share) * whole > GATHERING_COST

    def project(self, out: Tensor) -> None:
        """Fill packed ``out`` [rows, S, D] with the input projection at events."""
        first = self.rows(0).stop
        out[:first] = 0  # initial states have no input
        if self.dense:
            drive = input_projection(self.x, self.weight, self.bias).flatten(0, 2)
            torch.index_select(drive, 0, self.readable[first:], out=out[first : self.plan.rows])
            return
        for n, rows in enumerate(self.plan.rows_by_head):
            out.index_copy_(0, rows, self.project_head(n, self.readable[rows] // self.heads))

    def project_head(self, n: int, places: Tensor) -> Tensor:
        """The input projection of head n at rows ``places`` of x [T * B, I]."""
        x = self.x.flatten(0, 1).index_select(0, places)
        return input_projection(x, self.weight[n, None], self.bias[n, None])[:, 0]

    def project_backward(self, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by x, weight and bias of :meth:`project`, from packed ``grad`` [rows, S, D]."""
        flat_x = self.x.flatten(0, 1)
        weight = self.weight.flatten(1, 2).to(self.x.dtype)  # [N, S*D, I]
        grad = grad.flatten(1).to(self.x.dtype)
        # The dense product multiplies all of x and of the weights, closed steps by 0.
        if self.dense and bool(flat_x.sum().isfinite() & weight.sum().isfinite()):
            first = self.rows(0).stop
            size = self.steps * self.batch * self.heads
            spread = grad.new_zeros(size + 1, grad.shape[1])  # the last row takes padding's writes
            spread.index_copy_(0, self.plan.source[first:], grad[first:])
            by_drive = spread[:size].view(self.steps * self.batch, -1)
            return (
                (by_drive @ weight.flatten(0, 1)).view_as(self.x),
                (by_drive.t() @ flat_x).view_as(self.weight),
                by_drive.sum(0).view_as(self.bias),
            )
        grad_x = torch.zeros_like(flat_x, memory_format=torch.contiguous_format)
        grad_weight = torch.empty_like(weight)
        grad_bias = grad.new_empty(self.heads, grad.shape[1])
        for n, rows in enumerate(self.plan.rows_by_head):
            if (unread := self._unprojected(rows)) is not None:
                rows = rows[~unread]  # noqa: PLW2901
            places = self.readable[rows] // self.heads
            by_drive = grad.index_select(0, rows)
            grad_x.index_add_(0, places, by_drive @ weight[n])
            torch.mm(by_drive.t(), flat_x.index_select(0, places), out=grad_weight[n])
            torch.sum(by_drive, 0, out=grad_bias[n])
        shapes = (self.x, self.weight, self.bias)
        x, weight, bias = (
            v.view_as(s) for v, s in zip((grad_x, grad_weight, grad_bias), shapes, strict=True)
        )
        return x, weight, bias

    def _unprojected(self, rows: Tensor) -> Tensor | None:
        """[r] bool: padding, and resets at which all units of a head are closed."""
        padding = None if self.padding is None else self.padding[rows]
        if self.fresh is None:
            return padding
        closed = (self.flat_gate[self.plan.gate_source[rows]] == 0).all(-1)
        return closed if padding is None else closed | padding

    # ------------------------------------------------------------ operands, by packed rows

    def rows(self, k: int) -> slice:
        """The packed rows of block k."""
        start = self.plan.start[k]
        return slice(start, start + self.plan.heads[k] * self.plan.sequences[k])

    def chunks(self) -> list[tuple[int, int]]:
        """Runs of blocks [first, last), latest first, small enough to hold at once."""
        most = self.chunk_elements // (self.drives * self.width)
        runs, last = [], self.plan.blocks
        for k in range(last - 1, 0, -1):
            if k == 1 or self.rows(last - 1).stop - self.rows(k - 1).start > most:
                runs.append((k, last))
                last = k
        return runs

    def gate(self, rows: slice) -> Tensor:
        """Gate values [r, 1, m]."""
        return self.flat_gate[self.plan.gate_source[rows]].unsqueeze(1).to(self.dtype)

    def unread(self, rows: slice) -> Tensor | None:
        """[r, 1, m] bool: units that are closed at the event, and padding; None if all are open."""
        closed = self.gate(rows) == 0 if self.masked else None
        if self.padding is None:
            return closed
        padding = self.padding[rows, None, None]
        return padding if closed is None else closed | padding

    def decay_of(self, rows: slice) -> Tensor:
        """The decay of each row's units, [r, C, D]."""
        assert self.decay is not None
        return self.decay[self.plan.head_rank[self.plan.head[rows]], 0]

    def carry_power(self, rows: slice) -> Tensor:
        """decay ** (closed steps after these rows' events): [r, C, D]."""
        return self.decay_of(rows) ** self._closed_after(rows)

    def carry_power_slope(self, rows: slice) -> Tensor:
        """The derivative of :meth:`carry_power` by decay."""
        count = self._closed_after(rows)
        return count * self.decay_of(rows) ** (count - 1).clamp(min=0)

    def _closed_after(self, rows: slice) -> Tensor:
        assert self.closed_after is not None
        return self.closed_after[rows, None, None].to(self.dtype)

    def update_arguments(self, drives: Tensor, states: Tensor, k: int) -> tuple:
        """Arguments of the cell's update for block k: drive, rec, state, unit, as [n, a, ...]."""
        n, a = self.plan.heads[k], self.plan.sequences[k]
        before = self.plan.block(states, k - 1)
        if self.decay is not None:
            power = self.carry_power(self.rows(k - 1))
            before = before * power.view_as(before)
        before = before[:n, :a]
        before = self.cut(before.flatten(0, 1), self.rows(k)).view_as(before)
        drive = self.plan.block(drives, k).to(self.dtype)
        rec = torch.bmm(before[:, :, 0], self.recurrent_t[:n]).view_as(drive)
        return drive, rec, before, self.unit[:, :n].unbind(0)

    def linearize(
        self, drives: Tensor, states: Tensor, first: int, last: int
    ) -> tuple[Tensor, Linearization]:
        """States before the events of blocks [first, last) and the cell's derivatives there."""
        plan = self.plan
        rows = slice(self.rows(first).start, self.rows(last - 1).stop)
        previous, head = plan.previous[rows], plan.head_rank[plan.head[rows]]
        before = states.index_select(0, previous).to(self.dtype)
        if self.decay is not None:
            assert self.closed_after is not None
            count = self.closed_after[previous][:, None, None].to(self.dtype)
            before = before * self.decay[head, 0] ** count
        before = self.cut(before, rows)
        drive = drives[rows].to(self.dtype)
        rec = torch.empty_like(drive)
        for k in range(first, last):
            n, a = plan.heads[k], plan.sequences[k]
            here = slice(plan.start[k] - rows.start, plan.start[k] - rows.start + n * a)
            output = before[here, 0].view(n, a, self.width)
            rec[here] = torch.bmm(output, self.recurrent_t[:n]).view_as(rec[here])
        unit = [parameter[head, 0] for parameter in self.unit]
        return before, self.cell.linearize(drive, rec, before, unit)
