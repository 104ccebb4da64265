"""Readers of users' own files: every format gives the same sequences."""

import csv
import os
import sys
import wave

import numpy as np
import pytest

from surnn.data import DataError
from surnn.data.series import Columns, load_series, read_series, store
from surnn.data.series.waves import wave_features

ROWS = [
    # id, time, a, b, label: interleaved, and out of order in time
    ("p", 2, 3.0, 30.0, "up"), ("q", 1, 7.0, 70.0, "down"), ("p", 1, 2.0, 20.0, "up"),
    ("p", 0, 1.0, 10.0, "up"), ("q", 0, 6.0, 60.0, "down"),
]  # fmt: skip
EXPECTED = [[1, 10], [2, 20], [3, 30], [6, 60], [7, 70]]


def write_csv(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "t.csv", ("id", "time", "a", "b", "label"), ROWS)


def write_wave(path, samples, rate=8000, width=2):
    path.parent.mkdir(exist_ok=True, parents=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        scaled = np.rint(np.asarray(samples) * (2 ** (8 * width - 1) - 1)).astype("<i4")
        raw = scaled.astype("<i2").tobytes() if width == 2 else scaled.view(np.uint8)
        file.writeframes(raw if width == 2 else raw.reshape(-1, 4)[:, :3].tobytes())


def test_a_long_table_is_sorted_by_id_and_time(table):
    series = read_series(table, Columns())
    assert series.values.tolist() == EXPECTED
    assert series.lengths.tolist() == [3, 2]
    assert series.channels == ("a", "b")
    assert series.target.tolist() == [["up"], ["down"]]
    assert not series.per_step


def test_named_columns_and_dates(tmp_path):
    rows = [(f"2026-01-0{9 - i}", i, "x", i % 2) for i in range(4)]
    path = write_csv(tmp_path / "t.csv", ("when", "level", "who", "alarm"), rows)
    series = read_series(path, Columns(time="when", features=("level",), target=("alarm",)))
    assert series.values[:, 0].tolist() == [3, 2, 1, 0]
    assert series.per_step
    assert series.target[:, 0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": ("labell",)}, "did you mean 'label'"),
        ({"features": ("label",)}, "values that are not numbers"),
        ({"group": "time"}, "changes within a sequence"),
    ],
)
def test_wrong_columns_are_explained(table, options, message):
    with pytest.raises(DataError, match=message):
        read_series(table, Columns(**options))


def test_uneven_rows_and_empty_tables(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3\n")
    with pytest.raises(DataError, match="row 2 has 1 entries, expected 2"):
        read_series(tmp_path / "a.csv", Columns())
    (tmp_path / "b.csv").write_text("x,y\n")
    with pytest.raises(DataError, match="no rows"):
        read_series(tmp_path / "b.csv", Columns())


def test_parquet_equals_csv(table, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet  # noqa: PLC0415 (optional)

    names = ("id", "time", "a", "b", "label")
    columns = dict(zip(names, map(list, zip(*ROWS, strict=True)), strict=True))
    parquet.write_table(arrow.table(columns), tmp_path / "t.parquet")
    one, other = (read_series(p, Columns()) for p in (table, tmp_path / "t.parquet"))
    assert (one.values == other.values).all()
    assert (one.target == other.target).all()


def test_parquet_without_its_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=r"surnn\[parquet\]"):
        read_series(tmp_path / "t.parquet", Columns())


def test_a_wide_table_without_a_header(tmp_path):
    (tmp_path / "X_TRAIN.tsv").write_text("1\t5\t6\t7\n2\t8\t9\t\n")
    series = read_series(tmp_path / "X_TRAIN.tsv", Columns(layout="wide"))
    assert series.lengths.tolist() == [3, 2]
    assert series.values[:, 0].tolist() == [5, 6, 7, 8, 9]
    assert series.target[:, 0].tolist() == [1, 2]


def test_arrays_with_padding_labels_and_groups(tmp_path):
    x = np.arange(12, dtype=np.float64).reshape(2, 3, 2)
    x[1, 2] = np.nan
    np.savez(tmp_path / "a.npz", x=x, y=np.array(["u", "v"]), who=np.array([3, 4]))
    series = read_series(tmp_path / "a.npz", Columns(group="who"))
    assert series.lengths.tolist() == [3, 2]
    assert series.values.tolist() == x.reshape(-1, 2)[:5].tolist()
    assert series.groups.tolist() == ["3", "4"]
    with pytest.raises(DataError, match="no array 'z'; it has x, y, who"):
        read_series(tmp_path / "a.npz", Columns(features=("z",)))


def test_npy_is_memory_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((4, 5, 2), np.float32))
    np.save(tmp_path / "y.npy", np.arange(4))
    series = read_series(tmp_path / "x.npy", Columns(labels="y.npy"))
    assert isinstance(series.values.base, np.memmap)
    assert series.target[:, 0].tolist() == [0, 1, 2, 3]


def test_pickled_arrays_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read"):
        read_series(tmp_path / "x.npy", Columns())


def test_ts_files(tmp_path):
    text = "#c\n@problemName X\n@timestamps false\n@classLabel true a b\n@data\n"
    (tmp_path / "x.ts").write_text(text + "1,2,3:4,5,6:a\n7,?:8,9:b\n")
    series = read_series(tmp_path / "x.ts", Columns())
    assert series.lengths.tolist() == [3, 2]
    assert series.values[:3].tolist() == [[1, 4], [2, 5], [3, 6]]
    assert np.isnan(series.values[4, 0])
    assert series.target[:, 0].tolist() == ["a", "b"]
    (tmp_path / "y.ts").write_text("@classLabel true\n@data\n1,2,3:x,5,6:a\n")
    with pytest.raises(DataError, match=r"y\.ts:3 is not a line"):
        read_series(tmp_path / "y.ts", Columns())


def test_a_folder_of_waves_by_class(tmp_path):
    tone = 0.5 * np.sin(np.arange(800) / 3)
    for name in ("cat/1.wav", "dog/1.wav", "dog/2.wav"):
        write_wave(tmp_path / name, tone)
    series = read_series(tmp_path, Columns(bands=12))
    assert series.target[:, 0].tolist() == ["cat", "dog", "dog"]
    assert series.lengths.tolist() == [8, 8, 8]  # 100 ms: frames of 25 ms every 10 ms
    assert len(series.channels) == 12
    write_wave(tmp_path / "dog/3.wav", tone, rate=16000)
    with pytest.raises(DataError, match="one rate"):
        read_series(tmp_path, Columns())


def test_raw_samples_of_16_and_24_bits(tmp_path):
    samples = np.linspace(-0.9, 0.9, 160)
    for width in (2, 3):
        folder = tmp_path / str(width)
        write_wave(folder / "a.wav", samples, width=width)
        series = read_series(folder, Columns(bands=0, hop=10))
        assert series.values.shape == (2, 80)
        assert np.abs(series.values.ravel() - samples).max() < 1e-4


def test_loud_bands_follow_the_pitch():
    t = np.arange(8000) / 8000
    low, high = (wave_features(np.sin(2 * np.pi * f * t), 8000, 40, 25, 10) for f in (200, 2000))
    assert low.mean(0).argmax() < high.mean(0).argmax()


def test_names_give_classes_and_groups(tmp_path):
    for name in ("seven_anna_1.csv", "two_bob_1.csv"):
        write_csv(tmp_path / name, ("v",), [(1,), (2,)])
    wanted = Columns(names="{class}_{speaker}_{take}.csv", group="speaker")
    series = read_series(tmp_path, wanted)
    assert series.target[:, 0].tolist() == ["seven", "two"]
    assert series.groups.tolist() == ["anna", "bob"]
    write_csv(tmp_path / "odd.csv", ("v",), [(1,)])
    with pytest.raises(DataError, match=r"'odd\.csv' is not named like"):
        read_series(tmp_path, wanted)


def test_a_table_of_labels(tmp_path):
    for name in ("a.csv", "b.csv"):
        write_csv(tmp_path / name, ("v",), [(1,), (2,)])
    (tmp_path / "labels.csv").write_text("file,label\na.csv,good\nb,bad\n")
    series = read_series(tmp_path, Columns(labels="labels.csv"))
    assert series.target[:, 0].tolist() == ["good", "bad"]


def test_a_constant_column_of_each_file_is_a_label(tmp_path):
    for name, label in (("a", "good"), ("b", "bad")):
        write_csv(tmp_path / f"{name}.csv", ("v", "label"), [(1, label), (2, label)])
    series = read_series(tmp_path, Columns())
    assert not series.per_step
    assert series.target[:, 0].tolist() == ["good", "bad"]


def test_large_sets_are_stored_once_and_mapped(table, tmp_path, monkeypatch):
    monkeypatch.setenv("SURNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "LARGE", 8)
    store._load.cache_clear()
    series, about = load_series(table, Columns())
    assert isinstance(series.values, np.memmap)
    assert series.values.tolist() == EXPECTED
    store._load.cache_clear()
    monkeypatch.setattr(store, "read_series", None)  # it is not read again
    again, _ = load_series(table, Columns())
    assert again.values.tolist() == EXPECTED
    assert (again.target == series.target).all()
    assert about["files"] == 1


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(DataError, match="no file or folder"):
        read_series(tmp_path / "x.csv", Columns())
    with pytest.raises(DataError, match="no files of a known format"):
        read_series(tmp_path, Columns())


@pytest.mark.parametrize("bad", ["1,5", "oops"])
def test_a_column_of_numbers_with_one_text_is_an_error(tmp_path, bad):
    rows = "".join(f'{n},{t},{t},"note {t}"\n' for n in range(2) for t in range(4))
    (tmp_path / "t.csv").write_text(f"id,time,a,note\n{rows}2,0,0,n\n")
    assert read_series(tmp_path / "t.csv", Columns()).channels == ("a",)
    (tmp_path / "t.csv").write_text(f'id,time,a,note\n{rows}2,0,"{bad}",n\n')
    with pytest.raises(DataError, match=f"column 'a' has numbers, but '{bad}' in row 9; correct"):
        read_series(tmp_path / "t.csv", Columns())


def test_whole_numbers_of_ids_and_groups_have_no_point(tmp_path):
    (tmp_path / "t.csv").write_text("id,who,a\n1,7,0\n1,7,1\n2,8.5,2\n")
    series = read_series(tmp_path / "t.csv", Columns(group="who"))
    assert series.names == ["sequence 1 in t.csv", "sequence 2 in t.csv"]
    assert series.groups.tolist() == ["7", "8.5"]


def test_ragged_arrays_and_missing_labels_are_explained(tmp_path):
    ragged = np.array([np.zeros(3), np.zeros(5)], object)
    np.savez(tmp_path / "x.npz", x=ragged)
    with pytest.raises(DataError, match=r"array 'x' holds Python objects.*pad .* with NaN"):
        read_series(tmp_path / "x.npz", Columns())
    np.save(tmp_path / "x.npy", ragged)
    with pytest.raises(DataError, match=r"pad .* with NaN"):
        read_series(tmp_path / "x.npy", Columns())
    np.save(tmp_path / "x.npy", np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"there is no file .*y\.npy, which --task\.labels names"):
        load_series(tmp_path / "x.npy", Columns(labels="y.npy"))


def test_a_file_that_is_no_wav_says_so(tmp_path):
    (tmp_path / "a.wav").write_text("no wav")
    with pytest.raises(DataError, match="it ends early"):
        read_series(tmp_path / "a.wav", Columns())
