"""RESULTS.md and its records: ``python -m surnn_recipes.results``.

``records`` copies the records of runs to results/rows and summarises them, ``commands`` finds the
command that repeats a run, ``page`` writes RESULTS.md from ``tables``, ``claims``, ``figures`` and
``benchmarks``, ``blocks`` writes the tables of the README and of docs/.
"""

from surnn.errors import SurnnError


class ResultsError(SurnnError):
    """A record, a claim or a headline that cannot be made; the message says why."""
