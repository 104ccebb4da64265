"""Every option of a run, as typed fields; each is a flag of ``surnn train``.

An option that would have no effect is an error. This package does not import torch.
"""

from .gate import GATE_CONFIGS as GATE_CONFIGS
from .gate import AlwaysOpenConfig as AlwaysOpenConfig
from .gate import CyclesConfig as CyclesConfig
from .gate import EveryNConfig as EveryNConfig
from .gate import FixedRandomConfig as FixedRandomConfig
from .gate import FixedRhythmConfig as FixedRhythmConfig
from .gate import FullGateConfig as FullGateConfig
from .gate import GateConfig as GateConfig
from .gate import GateKind as GateKind
from .gate import HorizonOptions as HorizonOptions
from .gate import InputGateConfig as InputGateConfig
from .gate import LearnedGateConfig as LearnedGateConfig
from .gate import RhythmConfig as RhythmConfig
from .gate import SpectralConfig as SpectralConfig
from .gate import SplineConfig as SplineConfig
from .gate import SSMGateConfig as SSMGateConfig
from .gate import TableConfig as TableConfig
from .gate import ThresholdConfig as ThresholdConfig
from .gate import WarpedRhythmConfig as WarpedRhythmConfig
from .gate import gate_config as gate_config
from .model import HEAD_SIZE as HEAD_SIZE
from .model import OURS as OURS
from .model import ModelConfig as ModelConfig
from .model import ModelKind as ModelKind
from .run import RunConfig as RunConfig
from .train import TrainConfig as TrainConfig
