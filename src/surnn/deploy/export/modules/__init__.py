"""A user's own module as a stream.

``trace.py`` records the calls of its forward with torch.fx. ``lower.py`` interprets them on
:mod:`signals <.signals>`, which know the order of their dimensions and how far they are shifted in
time, and writes a :class:`~.program.StreamProgram`: the same computation, one time step at a time.
``layers.py`` and ``functions.py`` have one rule for each module and function. ONNX and pt2 files
hold a step of the program; ``engine_operations.py`` writes it for the C engine.
"""

from .lower import as_program as as_program
from .program import StreamProgram as StreamProgram
from .signals import NotExportable as NotExportable
