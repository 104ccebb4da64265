"""Scan: how fast the recurrence is run. See :mod:`surnn.scan.contract` for shapes.

Every backend computes the same function and the same gradients as ``reference``, unless its own
page says otherwise (:mod:`surnn.scan.onepass` does).
"""

from . import flops as flops
from . import onnx as onnx
from .contract import EventList as EventList
from .contract import ScanInputs as ScanInputs
from .contract import ScanTraits as ScanTraits
from .contract import event_list as event_list
from .dispatch import BACKENDS as BACKENDS
from .dispatch import Backend as Backend
from .dispatch import check_backend as check_backend
from .dispatch import choose as choose
from .dispatch import scan as scan
