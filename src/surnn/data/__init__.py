"""Data sets: download, location on disk, reading into arrays.

Files are searched in the folder of ``--data``, in ``$SURNN_DATA``, and in the cache
(``$SURNN_CACHE/data``, by default ``~/.cache/surnn/data``), to which ``surnn data get NAME``
downloads them. Nothing here needs torch.
"""

from .locate import find as find
from .locate import need as need
from .registry import SETS as SETS
from .registry import DataError as DataError
from .registry import DataSet as DataSet
