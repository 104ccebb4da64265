"""``surnn bench``: training steps on a GPU, against torch's own layers.

``cases`` says what is measured, ``contestants`` builds it, ``jobs`` times one of them, ``run`` lets
them take turns, ``results`` keeps the numbers; ``report`` and ``figures`` show them.
"""
