"""What the event scan's forward loop, backward loop and gate pass share.

Shapes are those of :mod:`surnn.scan.contract`; packed rows those of :mod:`surnn.scan.plan`.
"""

import torch
from torch import Tensor

from ..cells import Linearization, get_cell
from .contract import input_projection
from .plan import EventPlan

# Elements of drive handled at a time where many steps or events are done at once: a few caches'
# worth on a CPU, enough to fill a GPU.
CHUNK_ELEMENTS = {"cpu": 1 << 19}
CHUNK_ELEMENTS_ELSEWHERE = 1 << 24
# Above this share of wanted (step, sequence, head) triples one dense product beats gathering.
DENSE_SHARE = 1 / 3
# And below this many saved multiplications a head, which is about what gathering costs.
GATHERING_PAYS = 3 << 20


class EventWalk:
    """One scan over events: its plan, its weights in the plan's order, and operands by row."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        recurrent: Tensor,
        unit: Tensor,
        gate: Tensor,
        decay: Tensor | None,
        lengths: Tensor | None,
        cell: str,
        binary: bool,
        dtype: torch.dtype,
    ) -> None:
        self.cell = get_cell(cell)
        self.dtype = dtype
        self.x, self.weight, self.bias = x, weight, bias
        self.steps, self.batch = x.shape[:2]
        self.heads, self.drives, self.width, _ = weight.shape
        self.plan = plan = EventPlan(gate, self.batch)
        places = self.steps * self.batch * self.heads
        self.dense = not self.gathering_pays(plan.rows / places)
        order = plan.head_order
        self.flat_gate = gate.reshape(-1, gate.shape[-1])
        # [N, S*D, D] and its transpose, heads in the plan's order, as are unit and decay.
        self.recurrent = recurrent[order].flatten(1, 2).to(dtype)
        self.recurrent_t = self.recurrent.transpose(1, 2)
        self.unit = unit[:, order].unsqueeze(2).to(dtype)  # [P, N, 1, D]
        self.decay = None if decay is None else decay[order].unsqueeze(1).to(dtype)  # [N, 1, C, D]
        self.closed_after = None if decay is None else plan.closed_after(lengths)
        self.masked = not binary or gate.shape[-1] > 1
        # Padding (lists that have ended before others) reads some row that exists, and is undone.
        self.padding = None if plan.shared else plan.event_step == self.steps
        self.readable = plan.source.clamp(0, places - 1)
        self.chunk_elements = CHUNK_ELEMENTS.get(x.device.type, CHUNK_ELEMENTS_ELSEWHERE)

    # ------------------------------------------------------------ the input projection

    def gathering_pays(self, share: float) -> bool:
        """Whether projecting only a ``share`` of all places, head by head, is worth it."""
        whole = self.steps * self.batch * self.weight[0].numel()
        return share <= DENSE_SHARE and (1 - share) * whole > GATHERING_PAYS

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
        if self.dense:
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

    def operands(self, drives: Tensor, states: Tensor, k: int) -> tuple:
        """drive, rec, state and unit with which block k's update is called, as [n, a, ...]."""
        n, a = self.plan.heads[k], self.plan.sequences[k]
        before = self.plan.block(states, k - 1)
        if self.decay is not None:
            power = self.carry_power(self.rows(k - 1))
            before = before * power.view_as(before)
        before = before[:n, :a]
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
        drive = drives[rows].to(self.dtype)
        rec = torch.empty_like(drive)
        for k in range(first, last):
            n, a = plan.heads[k], plan.sequences[k]
            here = slice(plan.start[k] - rows.start, plan.start[k] - rows.start + n * a)
            output = before[here, 0].view(n, a, self.width)
            rec[here] = torch.bmm(output, self.recurrent_t[:n]).view_as(rec[here])
        unit = [parameter[head, 0] for parameter in self.unit]
        return before, self.cell.linearize(drive, rec, before, unit)
