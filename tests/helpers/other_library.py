"""A pytest plugin: run tests with the C library that the variable SURNN_TEST_LIBRARY names."""

import os
from pathlib import Path

import surnn.library

if "SURNN_TEST_LIBRARY" in os.environ:  # not when pytest looks for doctests here
    surnn.library.LIBRARY = Path(os.environ["SURNN_TEST_LIBRARY"])
