"""Data sets: where they come from, where they lie, and how they are read into arrays.

Files are looked for in the folder that is named (``--data``), in ``$SURNN_DATA``, and in the cache
(``$SURNN_CACHE/data``, by default ``~/.cache/surnn/data``), where ``surnn data get NAME`` puts
them.
Nothing here needs torch.
"""

from .registry import SETS as SETS
from .registry import DataError as DataError
from .registry import DataSet as DataSet
from .where import find as find
from .where import need as need
