"""Looking inside: what gates, states and gradients of a model did, as plain arrays.

Everything begins with :func:`record`, which runs any model of ours and keeps its gates and states;
the other functions make numbers of that. Figures are apart, in :mod:`surnn.analysis.figures`.
"""

from .rates import intervals, raster, unit_rates, update_rates
from .recording import LayerRecord, Recording, record

__all__ = [
    "LayerRecord",
    "Recording",
    "intervals",
    "raster",
    "record",
    "unit_rates",
    "update_rates",
]
