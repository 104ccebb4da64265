"""Layers: what the user holds. Shaped like ``nn.GRU``, with gates, heads and streaming."""

from .base import SelectiveLayer as SelectiveLayer
from .recurrent import SuGRU as SuGRU
from .recurrent import SuLSTM as SuLSTM
from .recurrent import SuRNN as SuRNN
from .spiking import SuSNN as SuSNN
