"""The baselines: mixers to compare surnn's layers with, in the same models and the same trainer."""

from .attention import Attention as Attention
from .delta import GatedDelta as GatedDelta
from .linear import LinearMap as LinearMap
from .mingru import MinGRU as MinGRU
from .recurrent import TorchRecurrent as TorchRecurrent
from .saving import DeltaGRU as DeltaGRU
from .saving import SavingMixer as SavingMixer
from .saving import SkipGRU as SkipGRU
from .saving import budget_loss as budget_loss
from .ssm import DiagonalSSM as DiagonalSSM
