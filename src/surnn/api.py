"""The public names of :mod:`surnn`, which hands them out when they are first asked for."""
# ruff: noqa: PLC0414 (an alias of the same name is how a re-export is marked)

from . import analysis as analysis
from . import export as export
from .cells import Cell as Cell
from .cells import Linearization as Linearization
from .cells import register_cell as register_cell
from .engine import Engine as Engine
from .engine import EngineError as EngineError
from .engine import Stream as Stream
from .gates import AlwaysOpen as AlwaysOpen
from .gates import Cycles as Cycles
from .gates import EveryN as EveryN
from .gates import FixedRandom as FixedRandom
from .gates import FixedRhythm as FixedRhythm
from .gates import Gate as Gate
from .gates import InputGate as InputGate
from .gates import Rhythm as Rhythm
from .gates import Schedule as Schedule
from .gates import Spectral as Spectral
from .gates import Spline as Spline
from .gates import SSMGate as SSMGate
from .gates import Table as Table
from .gates import Threshold as Threshold
from .gates import WarpedRhythm as WarpedRhythm
from .generation import generate as generate
from .layers import SelectiveLayer as SelectiveLayer
from .layers import SuGRU as SuGRU
from .layers import SuLSTM as SuLSTM
from .layers import SuRNN as SuRNN
from .layers import SuSNN as SuSNN
from .memory import activation_bytes as activation_bytes
from .runs import RunError as RunError
from .state import SuState as SuState
from .surrogate import Surrogate as Surrogate
from .trained import Trained as Trained
from .trained import load as load
