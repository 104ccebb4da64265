"""Files as people leave them: what cannot be read as it was meant is an error."""

import os
import wave

import numpy as np
import pytest

from surnn.data import DataError
from surnn.data.series import Columns, load_series, read_series

VALUES = "u\n1\n2\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read_text(tmp_path, text, **options):
    return read_series(write(tmp_path / "t.csv", text), Columns(**options))


@pytest.fixture
def folder(tmp_path):
    """One sequence in each of two sub-folders, whose files have the same name."""
    for name in ("x", "y"):
        write(tmp_path / name / "1.csv", VALUES)
    return tmp_path


# ---------------------------------------------------------------------------- folders


def test_copies_in_hidden_folders_are_no_sequences(folder):
    """Jupyter's copy of a file would be in another part than the file."""
    for name in (".ipynb_checkpoints/1-checkpoint.csv", "._1.csv", "__MACOSX/1.csv"):
        write(folder / "x" / name, VALUES)
    write(folder / ".Trash" / "2.csv", VALUES)
    assert read_series(folder, Columns()).target[:, 0].tolist() == ["x", "y"]


def test_a_folder_may_lie_in_a_hidden_one(tmp_path):
    write(tmp_path / ".cache" / "set" / "x" / "1.csv", VALUES)
    assert read_series(tmp_path / ".cache" / "set", Columns()).lengths.tolist() == [2]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_labels_are_separated_as_other_tables(folder, mark):
    write(folder / "labels.csv", f"file{mark}label\nx/1.csv{mark}up\ny/1.csv{mark}down\n")
    series = read_series(folder, Columns(labels="labels.csv"))
    assert series.target[:, 0].tolist() == ["up", "down"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x/1.csv,up\ny/1.csv,down\nx/1.csv,down\n", "row 3 .* second label for 'x/1.csv'"),
        ("1.csv,up\n", "'1.csv' .* is the name of x/1.csv and of y/1.csv"),
        ("x/1.csv,up\ny/1.csv\n", "row 2 .* no label"),
        ("", "no labels"),
    ],
)
def test_labels_that_say_nothing_or_two_things(folder, text, message):
    write(folder / "labels.csv", text)
    with pytest.raises(DataError, match=message):
        read_series(folder, Columns(labels="labels.csv"))


def test_a_table_of_labels_goes_before_a_column_with_a_usual_name(tmp_path):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.csv", "x,y\n1,2\n3,4\n")
    write(tmp_path / "labels.csv", "a,up\nb,down\n")
    series = read_series(tmp_path, Columns(labels="labels.csv"))
    assert series.channels == ("x", "y")
    assert series.target[:, 0].tolist() == ["up", "down"]


def test_new_labels_are_read_in_the_same_process(folder):
    columns = Columns(labels="labels.csv")
    for labels in (["up", "down"], ["low", "high"]):
        write(folder / "labels.csv", f"x/1.csv,{labels[0]}\ny/1.csv,{labels[1]}\n")
        series, _ = load_series(folder, columns)
        assert series.target[:, 0].tolist() == labels


# ---------------------------------------------------------------------------- tables


def test_the_third_axis_is_no_target(folder):
    for name in ("x", "y"):
        write(folder / name / "1.csv", "t,X,Y,Z\n0,1,2,3\n1,4,5,6\n")
    series = read_series(folder, Columns())
    assert series.channels == ("X", "Y", "Z")
    assert series.target[:, 0].tolist() == ["x", "y"]


def test_an_identifier_is_no_time_step(tmp_path):
    series = read_text(tmp_path, "id,label,0,1\n7,a,5,6\n8,b,7,8\n", layout="wide")
    assert series.values[:, 0].tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize("values", ["21,5 22,25 3", "21.5C 22V -3.1", "21% 22% 3", "1'200 1'300 3"])
def test_numbers_that_are_written_otherwise_are_not_left_out(tmp_path, values):
    rows = "".join(f"{k};{value};{k}\n" for k, value in enumerate(values.split()))
    with pytest.raises(DataError, match="'temp' has numbers, but"):
        read_text(tmp_path, f"time;temp;count\n{rows}")


def test_texts_with_digits_are_left_out_as_before(tmp_path):
    text = "time,code,when,count\n0,A1,10:30,1\n1,2b-c,11:30,2\n"
    assert read_text(tmp_path, text).channels == ("count",)


def test_truth_values_are_numbers(tmp_path):
    series = read_text(tmp_path, "id,on,label\n1,True,False\n1,false,False\n2,,True\n2,True,True\n")
    assert series.channels == ("on",)
    np.testing.assert_array_equal(series.values[:, 0], [1, 0, np.nan, 1])
    assert series.target[:, 0].tolist() == ["False", "True"]


@pytest.mark.parametrize("column", ["machine", "number"])
def test_several_sequences_without_an_identifier(tmp_path, column):
    a, b = ("A", "B") if column == "machine" else (1, 2)
    text = f"time,temp,{column}\n" + "".join(f"{t},{t},{a}\n{t},9{t},{b}\n" for t in range(3))
    with pytest.raises(DataError, match=f"rows 1 and 2 have the same time.*--task.id {column}"):
        read_text(tmp_path, text)
    assert read_text(tmp_path, text, id=column).lengths.tolist() == [3, 3]
    assert read_text(tmp_path, text, features=("temp",)).lengths.tolist() == [6]


def test_equal_times_of_one_sequence_stay_in_the_order_of_the_file(tmp_path):
    text = "time,temp\n" + "".join(f"{t // 4},{t}.5\n" for t in range(12))
    assert read_text(tmp_path, text).values[:, 0].tolist() == [t + 0.5 for t in range(12)]


def test_a_column_that_float32_cannot_resolve(tmp_path):
    rows = "".join(f"{k},{1_700_000_000 + k}\n" for k in range(8))
    with pytest.raises(DataError, match=r"'epoch' .* float32 resolves 128"):
        read_text(tmp_path, f"time,epoch\n{rows}")


def test_a_missing_label_is_no_class(tmp_path):
    from surnn.tasks.sequence_goals import class_names, class_texts  # noqa: PLC0415

    series = read_text(tmp_path, "id,u,label\n1,1,a\n2,2,nan\n3,3,NaN\n4,4,None\n5,5,\n")
    assert class_names(class_texts(series.target)) == ("None", "a")


# ---------------------------------------------------------------------------- other formats


@pytest.mark.parametrize("suffix", [".NPZ", ".TSV", ".PARQUET"])
def test_suffixes_in_capitals(tmp_path, suffix):
    lower = tmp_path / f"d{suffix.lower()}"
    if suffix == ".NPZ":
        np.savez(lower, x=np.arange(6.0).reshape(1, 6))
    elif suffix == ".TSV":
        write(lower, "u, of all\n" + "".join(f"{k}\n" for k in range(6)))
    else:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet  # noqa: PLC0415 (optional)

        parquet.write_table(arrow.table({"u": np.arange(6.0)}), lower)
    os.rename(lower, tmp_path / f"D{suffix}")
    series = read_series(tmp_path / f"D{suffix}", Columns())
    assert series.values[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_a_wave_that_was_cut_off(tmp_path):
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(16000))
    whole = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(whole[:9000])
    with pytest.raises(DataError, match="ends early"):
        read_series(tmp_path, Columns())


@pytest.mark.parametrize("head", ["", "@classLabel\tfalse\n"])
def test_the_last_dimension_is_no_label(tmp_path, head):
    path = write(tmp_path / "a.ts", f"{head}@data\n1,2,3:4,5,6\n")
    if head:
        series = read_series(path, Columns())
        assert series.target is None
        assert series.values.tolist() == [[1, 4], [2, 5], [3, 6]]
    else:
        with pytest.raises(DataError, match="@classLabel"):
            read_series(path, Columns())
