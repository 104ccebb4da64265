"""Selective-update RNNs: recurrent layers whose units update or carry their state exactly.

Each public name is imported when it is first used. ``surnn.SuGRU`` needs torch and nothing else;
``surnn --help`` does not wait for torch.
"""

from typing import TYPE_CHECKING

from surnn.lazy import lazy_names

if TYPE_CHECKING:
    from surnn import analysis as analysis
    from surnn.deploy import export as export
    from surnn.deploy.engine import Engine as Engine
    from surnn.deploy.engine import EngineError as EngineError
    from surnn.deploy.engine import Stream as Stream
    from surnn.deploy.engine import Streams as Streams
    from surnn.deploy.generation import generate as generate
    from surnn.errors import ClockError as ClockError
    from surnn.errors import RunError as RunError
    from surnn.errors import SurnnError as SurnnError
    from surnn.nn.activation_memory import activation_bytes as activation_bytes
    from surnn.nn.cells import Cell as Cell
    from surnn.nn.cells import Linearization as Linearization
    from surnn.nn.cells import register_cell as register_cell
    from surnn.nn.clocked import ClockedTensor as ClockedTensor
    from surnn.nn.gates import AlwaysOpen as AlwaysOpen
    from surnn.nn.gates import Cycles as Cycles
    from surnn.nn.gates import EveryN as EveryN
    from surnn.nn.gates import FixedRandom as FixedRandom
    from surnn.nn.gates import FixedRhythm as FixedRhythm
    from surnn.nn.gates import FullGate as FullGate
    from surnn.nn.gates import Gate as Gate
    from surnn.nn.gates import InputGate as InputGate
    from surnn.nn.gates import Rhythm as Rhythm
    from surnn.nn.gates import Schedule as Schedule
    from surnn.nn.gates import Spectral as Spectral
    from surnn.nn.gates import Spline as Spline
    from surnn.nn.gates import SSMGate as SSMGate
    from surnn.nn.gates import Table as Table
    from surnn.nn.gates import Threshold as Threshold
    from surnn.nn.gates import WarpedRhythm as WarpedRhythm
    from surnn.nn.gates import anneal as anneal
    from surnn.nn.layers import SelectiveLayer as SelectiveLayer
    from surnn.nn.layers import SuGRU as SuGRU
    from surnn.nn.layers import SuGRUCell as SuGRUCell
    from surnn.nn.layers import SuLSTM as SuLSTM
    from surnn.nn.layers import SuLSTMCell as SuLSTMCell
    from surnn.nn.layers import SuRNN as SuRNN
    from surnn.nn.layers import SuRNNCell as SuRNNCell
    from surnn.nn.layers import SuSNN as SuSNN
    from surnn.nn.state import SuState as SuState
    from surnn.nn.surrogate import Surrogate as Surrogate
    from surnn.runs.loading import Trained as Trained
    from surnn.runs.loading import load as load
    from surnn.train.estimators import SuClassifier as SuClassifier
    from surnn.train.estimators import SuRegressor as SuRegressor
    from surnn.train.from_python import fit as fit

__version__ = "0.1.0"

# The module of each public name; the list above says the same to editors and type checkers.
_HOMES = {
    "surnn.analysis": ("analysis",),
    "surnn.deploy.export": ("export",),
    "surnn.deploy.engine": ("Engine", "EngineError", "Stream", "Streams"),
    "surnn.deploy.generation": ("generate",),
    "surnn.errors": ("ClockError", "RunError", "SurnnError"),
    "surnn.nn.activation_memory": ("activation_bytes",),
    "surnn.nn.cells": ("Cell", "Linearization", "register_cell"),
    "surnn.nn.clocked": ("ClockedTensor",),
    "surnn.nn.gates": (
        "AlwaysOpen", "Cycles", "EveryN", "FixedRandom", "FixedRhythm", "FullGate", "Gate",
        "InputGate", "Rhythm", "SSMGate", "Schedule", "Spectral", "Spline", "Table", "Threshold",
        "WarpedRhythm", "anneal",
    ),
    "surnn.nn.layers": (
        "SelectiveLayer", "SuGRU", "SuGRUCell", "SuLSTM", "SuLSTMCell", "SuRNN", "SuRNNCell",
        "SuSNN",
    ),
    "surnn.nn.state": ("SuState",),
    "surnn.nn.surrogate": ("Surrogate",),
    "surnn.runs.loading": ("Trained", "load"),
    "surnn.train.estimators": ("SuClassifier", "SuRegressor"),
    "surnn.train.from_python": ("fit",),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)  # noqa: PLE0605 (made from the table)
__getattr__, __dir__ = lazy_names(__name__, _HOME_OF)
