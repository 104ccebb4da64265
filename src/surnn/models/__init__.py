"""Models: blocks of layers between an encoder and a readout, and the baselines.

Names are imported when first used, because tasks need ``signature`` but no model.
"""

from typing import TYPE_CHECKING

from surnn.lazy import lazy_names

if TYPE_CHECKING:
    from .model import SequenceModel as SequenceModel
    from .model import StreamState as StreamState
    from .signature import Output as Output
    from .signature import Tokens as Tokens
    from .signature import Values as Values

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "SequenceModel": "surnn.models.model",
        "StreamState": "surnn.models.model",
        "Output": "surnn.models.signature",
        "Tokens": "surnn.models.signature",
        "Values": "surnn.models.signature",
    },
)
