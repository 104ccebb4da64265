"""Analysis of gates, states and gradients, as plain arrays.

:func:`record` runs a model and records its gates and states; most other functions compute numbers
from a recording. :mod:`surnn.analysis.figures` draws them.

Example:
    >>> import surnn, torch
    >>> layer = surnn.SuGRU(3, 8, gate=surnn.EveryN(5))
    >>> recording = surnn.analysis.record(layer, torch.randn(20, 2, 3))
    >>> surnn.analysis.update_rates(recording)
    tensor([0.2000], dtype=torch.float64)
    >>> surnn.analysis.median_interval(surnn.analysis.intervals(recording.layers[0]))
    5
"""

from .changes import (
    ImageMaps,
    RateByChange,
    as_image,
    correlation,
    image_maps,
    input_changes,
    open_share,
    pixel_order,
    rate_by_change,
    state_changes,
)
from .curves import Band, Curve, TimedCurve, band, learning_curve, seconds_to, timed_curve
from .depth import depth_curve, effective_depth, path_counts, update_count, update_rate, update_set
from .forecasts import Forecast, attractor, forecast
from .gradients import Decay, GradientProfile, fit_decay, gradient_profile
from .jacobians import (
    Jacobians,
    RowBound,
    identity_rows,
    jacobians,
    row_bound,
    row_growth,
    sensitivity,
)
from .rates import interval_bins, intervals, median_interval, raster, unit_rates, update_rates
from .recording import LayerRecord, NotApplicable, Recording, record
from .retention import retention, skip_drive_for_retention
from .tradeoffs import Cost, TradeOffs, trade_offs, training_seconds
from .trajectories import PrincipalComponents, Regimes, path_length, principal_components, regimes

__all__ = [
    "Band",
    "Cost",
    "Curve",
    "Decay",
    "Forecast",
    "GradientProfile",
    "ImageMaps",
    "Jacobians",
    "LayerRecord",
    "NotApplicable",
    "PrincipalComponents",
    "RateByChange",
    "Recording",
    "Regimes",
    "RowBound",
    "TimedCurve",
    "TradeOffs",
    "as_image",
    "attractor",
    "band",
    "correlation",
    "depth_curve",
    "effective_depth",
    "fit_decay",
    "forecast",
    "gradient_profile",
    "identity_rows",
    "image_maps",
    "input_changes",
    "interval_bins",
    "intervals",
    "jacobians",
    "learning_curve",
    "median_interval",
    "open_share",
    "path_counts",
    "path_length",
    "pixel_order",
    "principal_components",
    "raster",
    "rate_by_change",
    "record",
    "regimes",
    "retention",
    "row_bound",
    "row_growth",
    "seconds_to",
    "sensitivity",
    "skip_drive_for_retention",
    "state_changes",
    "timed_curve",
    "trade_offs",
    "training_seconds",
    "unit_rates",
    "update_count",
    "update_rate",
    "update_rates",
    "update_set",
]
