"""Layers, with the interface of ``nn.GRU`` plus gates, heads and streaming."""

from .base import SelectiveLayer as SelectiveLayer
from .recurrent import SuGRU as SuGRU
from .recurrent import SuLSTM as SuLSTM
from .recurrent import SuRNN as SuRNN
from .single_step import SuGRUCell as SuGRUCell
from .single_step import SuLSTMCell as SuLSTMCell
from .single_step import SuRNNCell as SuRNNCell
from .spiking import SuSNN as SuSNN
