"""One page about one run or several: ``surnn report RUN [RUN ...]``.

``gathering`` reads a run's folder, ``curves`` thins what was logged, ``gates`` looks into the
trained model, ``writing`` puts it all into one HTML file that needs no network. The page's own
parts are in ``assets``: a template, a style sheet and the scripts, written by hand.
"""

from ..analysis.naming import names
from .gathering import gather
from .writing import page, write

__all__ = ["gather", "names", "page", "write"]
