"""The C engine with 8-bit weights and 8-bit activations, and the functions of its cells."""

import struct
import zlib

import numpy as np
import pytest
import torch

import surnn
from helpers.engines import python_run

SIMD = ("scalar", "generic", "avx2", "best")
CELLS = {"rnn": surnn.SuRNN, "gru": surnn.SuGRU, "lstm": surnn.SuLSTM, "alif": surnn.SuSNN}


def export(model, folder, weights="int8", activations="int8"):
    path = folder / f"{weights}-{activations}.surnn"
    return surnn.export.to_engine(model, path, weights, activations)


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("granularity", ["unit", 8, 16])
@pytest.mark.parametrize("cell", CELLS)
def test_streams_together_chunks_and_steps_agree_bit_for_bit(
    cell, granularity, simd, tmp_path, monkeypatch
):
    monkeypatch.setenv("SURNN_SIMD", simd)
    gate = surnn.Rhythm(rate=0.4, horizon=20, granularity=granularity)
    engine = surnn.Engine(export(CELLS[cell](21, 48, 2, gate=gate), tmp_path))
    x = np.random.default_rng(0).normal(size=(30, 7, 21))
    x[10:14, 2], x[20, 3] = x[9, 2], np.nan
    together = engine.streams(7)
    outputs = np.stack([together.step(frames) for frames in x])
    for i in range(7):
        single = engine.stream()
        steps = np.stack([single.step(frame) for frame in x[:, i]])
        assert np.array_equal(outputs[:, i], steps, equal_nan=True)
        assert np.array_equal(engine.stream().run(x[:, i]), steps, equal_nan=True)
    assert np.isnan(outputs[20:, 3]).any() == (cell != "alif")  # a voltage of NaN emits nothing
    assert not np.isnan(np.delete(outputs, 3, 1)).any()


@pytest.mark.parametrize("activations", ["int8", "int16"])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("cell", CELLS)
def test_many_streams_at_one_clock_agree_with_streams_alone(cell, heads, activations, tmp_path):
    """Units that are open in 16 streams side by side have products of their own."""
    gate = surnn.Rhythm(rate=0.4, horizon=20, granularity="unit")
    layer = CELLS[cell](21, 66, 2, gate=gate, heads=heads)
    engine = surnn.Engine(export(layer, tmp_path, activations=activations))
    count = 16 + 16 + 5
    x = np.random.default_rng(0).normal(size=(12, count, 21))
    x[5:8, 2], x[9, 20] = x[4, 2], np.nan
    together, alone = engine.streams(count), engine.streams(count)
    for frames in x:
        expected = np.stack([one.step(frame) for one, frame in zip(alone, frames, strict=True)])
        assert np.array_equal(together.step(frames), expected, equal_nan=True)
    assert [one.work for one in together] == [one.work for one in alone]


@pytest.mark.parametrize("granularity", ["unit", 8, 16])
@pytest.mark.parametrize("inputs", [3, 64, 77])
def test_products_of_the_largest_numbers_are_exact(granularity, inputs, tmp_path, monkeypatch):
    """Pairs of products leave 16 bits where signed and unsigned bytes are mixed up."""
    layer = surnn.SuRNN(
        inputs, 48, nonlinearity="relu", bias=False, gate=surnn.AlwaysOpen(granularity=granularity)
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            if name.startswith("weight_ih"):
                signs = torch.randint(2, weight.shape, generator=generator) * 2.0 - 1
                weight.copy_(signs)
                weight[0] = 1
    path = export(layer, tmp_path)
    x = torch.randint(2, (20, inputs), generator=generator) * 2.0 - 1
    x[0] = 1
    with torch.no_grad():
        expected = torch.stack([layer(row[None, None])[0][0, 0] for row in x]).numpy()
    assert expected.max() == inputs
    for simd in SIMD:
        monkeypatch.setenv("SURNN_SIMD", simd)
        engine = surnn.Engine(path)
        found = np.stack([engine.stream().step(row) for row in x])
        np.testing.assert_allclose(found, expected, rtol=3e-7, atol=0, err_msg=engine.simd)


def test_it_is_close_to_float32(tmp_path):
    layer = surnn.SuGRU(8, 64, 2, gate=surnn.Rhythm(rate=0.3, granularity=16, horizon=100))
    x = torch.randn(200, 8)
    expected, _ = python_run(layer, x)
    errors = {
        bits: np.abs(surnn.Engine(export(layer, tmp_path, "int8", bits)).stream().run(x) - expected)
        for bits in ("int16", "int8")
    }
    assert errors["int16"].mean() < errors["int8"].mean() < 0.006
    assert errors["int8"].max() < 0.1


@pytest.mark.parametrize("simd", SIMD)
def test_functions_of_cells(simd, tmp_path, monkeypatch):
    """One unit without recurrence: h = tanh(x)."""
    monkeypatch.setenv("SURNN_SIMD", simd)
    layer = surnn.SuRNN(1, 1, bias=False, gate=surnn.AlwaysOpen())
    with torch.no_grad():
        for name, weight in layer.named_parameters():
            weight.fill_(float(name.startswith("weight_ih")))
    stream = surnn.Engine(export(layer, tmp_path, "float32", "int16")).stream()
    x = np.concatenate((np.linspace(-12, 12, 4001), [0, 1e-8, -1e-8, 1e30, -np.inf, np.nan]))
    x = x.astype(np.float32)
    y = stream.run(x[:, None])[:, 0]
    assert np.isnan(y[-1])
    x, y = x[:-1], y[:-1]
    assert np.abs(y - np.tanh(x.astype(float))).max() < 4e-7
    assert np.abs(y).max() == 1
    assert (y[np.abs(x) > 9] == np.sign(x[np.abs(x) > 9])).all()
    assert (np.sign(y) == np.sign(x)).all()


def test_older_engines_refuse_the_file_by_its_version(tmp_path):
    layer = surnn.SuGRU(3, 32, gate=surnn.Rhythm(granularity=16))
    kinds = (("float32", "int16", 1), ("int8", "int16", 1), ("int8", "int8", 2))
    for weights, activations, version in kinds:
        content = bytearray(export(layer, tmp_path, weights, activations).read_bytes())
        assert struct.unpack_from("<I", content, 8) == (version,)
    path = tmp_path / "model.surnn"
    for version, message in ((1, "contradict"), (0, "another version"), (3, "another version")):
        struct.pack_into("<I", content, 8, version)
        struct.pack_into("<I", content, 12, zlib.crc32(content[16:]))
        path.write_bytes(content)
        with pytest.raises(surnn.EngineError, match=message):
            surnn.Engine(path)


def test_activations_need_8_bit_weights(tmp_path):
    layer = surnn.SuGRU(3, 8)
    with pytest.raises(ValueError, match="8-bit activations need weights='int8'"):
        export(layer, tmp_path, "float32", "int8")
    with pytest.raises(ValueError, match="'int16' or 'int8', got 'int4'"):
        export(layer, tmp_path, "int8", "int4")
