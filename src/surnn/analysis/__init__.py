"""Looking inside: what gates, states and gradients of a model did, as plain arrays.

Most begins with :func:`record`, which runs any model of ours and keeps its gates and states; the
other functions make numbers of that. Figures are apart, in :mod:`surnn.analysis.figures`.
"""

from .depth import (
    depth_curve,
    effective_depth,
    path_counts,
    update_count,
    update_rate,
    update_set,
)
from .jacobians import (
    Jacobians,
    RowBound,
    identity_rows,
    jacobians,
    row_bound,
    sensitivity,
)
from .rates import intervals, raster, unit_rates, update_rates
from .recording import LayerRecord, Recording, record
from .retention import retention, skip_drive_for_retention

__all__ = [
    "Jacobians",
    "LayerRecord",
    "Recording",
    "RowBound",
    "depth_curve",
    "effective_depth",
    "identity_rows",
    "intervals",
    "jacobians",
    "path_counts",
    "raster",
    "record",
    "retention",
    "row_bound",
    "sensitivity",
    "skip_drive_for_retention",
    "unit_rates",
    "update_count",
    "update_rate",
    "update_rates",
    "update_set",
]
