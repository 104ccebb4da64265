"""Blocks: a mixer with the norm, residual and feed-forward network around it.

To add a block, derive it from :class:`~surnn.models.base.Block`, or from :class:`WrapperBlock` if
it has a mixer, and let ``models/build.py`` build it. A block provides

- ``forward(x, lengths, state, reset)``: [T, B, features] to [T, B, width], time first, as
  recurrences read it; from a ``state`` also the state after x;
- ``init_state(batch)`` and ``step(x, state)``: streaming, one time step at a time;
- ``state_names``, ``split_state``, ``join_state``: its state as named tensors, for ONNX and
  torch.export files;
- ``check_resumable()``: whether a stream can be read in parts;
- ``check_resets()``: whether a sequence can restart inside it.

A ``WrapperBlock`` gets all but ``forward`` and ``step`` from its mixer. Nothing else in the library
needs to know the class. Only the C engine does: to run there, a block registers its operations in
``deploy/export/engine_blocks.py``.
"""

from .convolution import Convolution as Convolution
from .parts import NORMS as NORMS
from .parts import Dropout as Dropout
from .parts import DropPath as DropPath
from .parts import Norm as Norm
from .parts import apply_glu as apply_glu
from .residual import FeedForwardBlock as FeedForwardBlock
from .residual import GLUBlock as GLUBlock
from .residual import MixerBlock as MixerBlock
from .residual import PlainBlock as PlainBlock
from .residual import ResidualBlock as ResidualBlock
from .residual import WrapperBlock as WrapperBlock
