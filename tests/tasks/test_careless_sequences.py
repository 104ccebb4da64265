"""Mistakes with files of sequences that would give wrong scores without a word."""

import wave

import numpy as np
import pytest

from helpers.tiny_sets import CPU
from surnn.data import DataError
from surnn.tasks.batching import get_data
from surnn.tasks.sequences import Sequences


def table(path, header="id,u,v,label", columns=(0, 1)):
    random = np.random.default_rng(0)
    lines = [header]
    for number in range(40):
        for values in random.normal(size=(5, 2)) + np.array([0, 100]):
            first, second = (values[c].item() for c in columns)
            lines.append(f"{number},{first},{second},{'ab'[number % 2]}")
    path.write_text("\n".join(lines))
    return str(path)


def test_columns_of_another_file_are_matched_by_name(tmp_path):
    """As in surnn eval --task.path OTHER: the run knows the names of its features."""
    task = Sequences(path=table(tmp_path / "a.csv")).complete()
    assert task.channels == ("u", "v")
    other = table(tmp_path / "b.csv", "id,v,u,label", (1, 0))
    moved = task._copy(path=other)
    moved.prepare(CPU)
    task.prepare(CPU)
    assert (get_data(moved).series.values == get_data(task).series.values).all()
    assert get_data(moved).series.channels == task.channels
    renamed = task._copy(path=table(tmp_path / "c.csv", "id,u,w,label"))
    with pytest.raises(ValueError, match=r"features u, w.*has u, v.*--task\.channels u w"):
        renamed.prepare(CPU)


def test_the_test_is_not_the_training_data(tmp_path):
    path, copy = table(tmp_path / "a.csv"), table(tmp_path / "b.csv")
    for option in ("valid_path", "test_path"):
        with pytest.raises(ValueError, match=f"path and task.{option} have the same contents"):
            Sequences(path=path, **{option: copy}).complete()
    task = Sequences(path=path).complete()
    task._copy(test_path=copy, shares=(0.0, 0.0, 1.0)).prepare(CPU)  # nothing is trained


def test_waves_of_two_sampling_rates_are_no_one_set(tmp_path):
    for part, rate in (("train", 16000), ("test", 8000)):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            for take in range(4):
                with wave.open(str(tmp_path / part / name / f"{take}.wav"), "wb") as file:
                    file.setnchannels(1)
                    file.setsampwidth(2)
                    file.setframerate(rate)
                    file.writeframes(np.full(rate, 100 * take, "<i2").tobytes())
    task = Sequences(path=str(tmp_path / "train"), test_path=str(tmp_path / "test"))
    with pytest.raises(DataError, match=r"8000 samples a second .* 16000"):
        task.complete()
