"""One page about one run or several: ``surnn report RUN [RUN ...]``.

``run_data`` reads a run's folder, ``curves`` thins logged curves, ``gates`` records the gates of a
trained model, ``html_page`` writes one HTML file that needs no network. ``assets`` holds the
page's template, style sheet and scripts, all written by hand.
"""

from surnn.analysis.naming import names

from .html_page import page, write
from .run_data import gather

__all__ = ["gather", "names", "page", "write"]
