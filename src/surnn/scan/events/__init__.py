"""``events``: the event-driven scan in pure PyTorch, for any device.

A head changes only at its events, so its recurrence is an ordinary RNN over those steps alone: the
Python loop runs over the longest event list, not over time. The event states are saved for the
backward pass. The gate's gradient is exact at open *and* closed steps: at a closed step the
proposal feeds nothing, so all of them are computed in parallel from carried states.

Event lists (:class:`surnn.scan.contract.EventList`) are laid out in packed rows by ``plan``;
``packed`` holds the operands in that order; ``forward``, ``backward`` and ``gate_gradient`` are the
passes; ``op`` makes operators of them.
"""

from .op import scan as scan
