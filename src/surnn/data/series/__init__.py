"""Readers of a user's own sequences: CSV, Parquet, npz, npy, .ts and wav files, and folders."""

from .base import Columns as Columns
from .base import Series as Series
from .read import read_series as read_series
from .store import load_series as load_series
