"""Trained models as files for other programs: the C engine, browsers, ONNX, torch.export, NIR.

Each function is imported when first used, so that none needs the optional packages of another.

Example:
    >>> import surnn, tempfile
    >>> layer = surnn.SuGRU(3, 8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = surnn.Engine(surnn.export.to_engine(layer, f"{folder}/layer.surnn"))
    >>> engine.stream().step([0.1, 0.2, 0.3]).shape
    (8,)
"""

from typing import TYPE_CHECKING

from surnn.lazy import lazy_names

if TYPE_CHECKING:
    from .c_folder import to_c_folder as to_c_folder
    from .engine import to_engine as to_engine
    from .nir import to_nir as to_nir
    from .onnx import to_onnx as to_onnx
    from .pt2 import to_pt2 as to_pt2
    from .web import to_web as to_web

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "to_c_folder": "surnn.deploy.export.c_folder",
        "to_engine": "surnn.deploy.export.engine",
        "to_onnx": "surnn.deploy.export.onnx",
        "to_nir": "surnn.deploy.export.nir",
        "to_pt2": "surnn.deploy.export.pt2",
        "to_web": "surnn.deploy.export.web",
    },
)
