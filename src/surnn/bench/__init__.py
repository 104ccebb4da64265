"""``surnn bench``: training steps on a GPU, against torch's own layers.

``cases`` lists shapes and layers, ``contestants`` builds the layers, ``jobs`` times one layer,
``run`` times all of them in turns, ``results`` stores the numbers, ``report`` and ``figures`` show
them.
"""
