"""Tables are read as they are written: no row, identifier or time becomes another one."""

import datetime
import time
import wave

import numpy as np
import pytest

from surnn.data import DataError
from surnn.data.series import Columns, read_series, tables

LARGE = 2**60


def read(tmp_path, text, **options):
    path = tmp_path / "t.csv"
    path.write_text(text)
    return read_series(path, Columns(**options))


# ------------------------------------------------------------------ identifiers and times


@pytest.mark.parametrize("ids", [("007", "7"), ("1e3", "1000"), (str(LARGE + 1), str(LARGE + 2))])
@pytest.mark.parametrize("column", ["id", "group"])
def test_identifiers_are_texts(tmp_path, ids, column):
    text = "id,group,x\n" + "".join(
        f"{each if column == 'id' else number},{each},{number}\n" for number, each in enumerate(ids)
    )
    series = read(tmp_path, text, group="group")
    assert series.lengths.tolist() == [1, 1]
    assert series.groups.tolist() == list(ids)


def test_identifiers_of_parquet_files_are_exact(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, ids = tmp_path / "t.parquet", [LARGE + 1, LARGE + 2, LARGE + 1]
    parquet.write_table(pyarrow.table({"id": ids, "x": [1.0, 2.0, 3.0]}), path)
    series = read_series(path, Columns())
    assert series.lengths.tolist() == [2, 1]
    assert series.values[:, 0].tolist() == [1, 3, 2]
    parquet.write_table(pyarrow.table({"id": ["a", None, "a"], "x": [1.0, 2.0, 3.0]}), path)
    with pytest.raises(DataError, match="row 2 has no 'id'"):
        read_series(path, Columns())


def test_identifiers_and_labels_do_not_depend_on_where_the_file_is_cut(tmp_path, monkeypatch):
    """A block that has numbers alone, and one that has texts too."""
    monkeypatch.setattr(tables, "CHUNK", 4)
    rows = "1,5,0\n2,6,1\n1,7,0\nz,8,A\n1,9,0\n"
    series = read(tmp_path, "id,x,label\n" + rows)
    assert series.lengths.tolist() == [3, 1, 1]
    assert series.target[:, 0].tolist() == ["0", "1", "A"]
    series = read(tmp_path, "id,x,label\n" + rows.replace("A", "1"))
    assert series.target[:, 0].tolist() == [0, 1, 1]


def test_a_row_without_an_identifier_or_a_time_is_an_error(tmp_path):
    with pytest.raises(DataError, match="row 2 has no 'id'"):
        read(tmp_path, "id,x\na,1\n,2\n")
    with pytest.raises(DataError, match="row 2 has no time"):
        read(tmp_path, "time,x\n1,1\n,2\n0,3\n")


def test_nanoseconds_are_exact(tmp_path):
    """In float64, times around 2^60 that differ by less than 256 are the same."""
    rows = "".join(f"{LARGE + t},{t}\n" for t in (3, 1, 2, 0))
    assert read(tmp_path, "time,x\n" + rows).values[:, 0].tolist() == [0, 1, 2, 3]
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, moments = tmp_path / "t.parquet", np.array([LARGE + t for t in (3, 1, 2, 0)])
    for kind in (np.int64, "datetime64[ns]"):
        table = {"time": moments.astype(kind), "x": [3.0, 1.0, 2.0, 0.0]}
        parquet.write_table(pyarrow.table(table), path)
        assert read_series(path, Columns()).values[:, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="needs a change of the time zone")
def test_dates_do_not_depend_on_the_time_zone_of_the_machine(tmp_path, monkeypatch):
    """02:50 does not exist in Berlin on that day: it would come after 03:10."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        spring = datetime.datetime(2026, 3, 29)
        assert spring.replace(hour=2, minute=50).timestamp() > spring.replace(hour=3).timestamp()
        rows = "2026-03-29T01:50,1\n2026-03-29T02:50,2\n2026-03-29T03:10,3\n"
        assert read(tmp_path, "time,x\n" + rows).values[:, 0].tolist() == [1, 2, 3]
    finally:
        monkeypatch.undo()
        time.tzset()
    with pytest.raises(DataError, match="some times name a time zone"):
        read(tmp_path, "time,x\n2026-03-29T01:50,1\n2026-03-29T02:50+02:00,2\n")


# ------------------------------------------------------------------ headers


def test_names_of_columns_as_pandas_writes_them(tmp_path):
    """Numbers from 0, and a column of row numbers without a name, which is no input."""
    series = read(tmp_path, "0,1,2\n5,6,7\n8,9,10\n")
    assert series.values.tolist() == [[5, 6, 7], [8, 9, 10]]
    series = read(tmp_path, ",x,label\n0,6,a\n1,7,a\n")
    assert series.channels == ("x",)
    assert series.values.tolist() == [[6], [7]]


@pytest.mark.parametrize(
    "header", ["label,a,b,c\n", "label,0,1,2\n", "label,0.0,0.5,1.0\n", ""], ids=repr
)
def test_rows_that_begin_with_a_text_are_no_header(tmp_path, header):
    series = read(tmp_path, header + "up,1.5,1,2\ndown,3,2,1\n", layout="wide")
    assert series.values[:, 0].tolist() == [1.5, 1, 2, 3, 2, 1]
    assert series.target[:, 0].tolist() == ["up", "down"]


def test_a_number_that_float32_does_not_hold_is_infinite_without_a_warning(tmp_path):
    assert read(tmp_path, "x\n1e39\n2\n").values[:, 0].tolist() == [float("inf"), 2]


def test_two_columns_of_one_name_are_an_error(tmp_path):
    with pytest.raises(DataError, match="two columns are called 'x'"):
        read(tmp_path, "x,x,label\n1,2,a\n")


# ------------------------------------------------------------------ small files, much memory


def test_a_long_text_does_not_multiply_by_the_number_of_rows(tmp_path):
    """numpy would give each of 50,000 rows the room of the longest: 20 GB for 300 kB."""
    with pytest.raises(DataError, match="text of 100,000 characters"):
        read(tmp_path, "note,x\n" + "a,1\n" * 50_000 + "b" * 100_000 + ",1\n")
    path = tmp_path / "t.ts"
    path.write_text("@classLabel true\n@data\n" + "1," * 50_000 + "x" * 100_000 + ":a\n")
    with pytest.raises(DataError, match="text of 100,000 characters"):
        read_series(path, Columns())


def test_nor_over_blocks_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LARGEST_TEXTS", 4000)
    monkeypatch.setattr(tables, "CHUNK", 10)
    with pytest.raises(DataError, match="texts of 100 characters"):
        read(tmp_path, "note,x\n" + "a,1\n" * 50 + "b" * 100 + ",1\n")


def test_a_long_text_that_a_parquet_file_repeats(tmp_path):
    """7 kB that hold 20 GB of text, 200,000 times the same."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path, places = tmp_path / "t.parquet", pyarrow.array(np.zeros(200_000, np.int32))
    texts = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array(["z" * 100_000]))
    parquet.write_table(pyarrow.table({"note": texts, "x": np.zeros(200_000)}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match="text of 100,000 characters"):
        read_series(path, Columns())


# ------------------------------------------------------------------ errors name the file


def test_half_a_frame_and_labels_that_are_no_utf8(tmp_path):
    path = tmp_path / "a" / "x.wav"
    path.parent.mkdir()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(8))
    (tmp_path / "labels.csv").write_bytes(b"a/x.wav,\xe9\n")
    with pytest.raises(DataError, match=r"labels\.csv cannot be read"):
        read_series(tmp_path, Columns(labels="labels.csv"))
    (tmp_path / "labels.csv").unlink()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"x\.wav cannot be read"):
        read_series(tmp_path, Columns())
