"""What stands around layers: equations, convolutions, and what training leaves out."""

import pytest
import torch
from torch.nn import functional

from helpers.building import build
from surnn.models.blocks import Dropout, DropPath, apply_glu
from surnn.models.blocks.convolution import LONG, Convolution
from surnn.tasks import Output, Tokens, Values


@pytest.mark.parametrize("prenorm", [True, False])
def test_blocks_are_their_equations(prenorm):
    x = torch.randn(5, 2, 32)
    residual = build(prenorm=prenorm)
    block = residual.blocks[0]
    y, _ = block.mix(block.norm(x) if prenorm else x)
    total = x + functional.glu(block.out(functional.gelu(y)), -1)
    torch.testing.assert_close(block(x), total if prenorm else block.norm(total))
    assert (residual.norm is not None) == prenorm

    block = build(block="feedforward", prenorm=prenorm).blocks[0]
    first, second = block.norm, block.second_norm
    total = x + block.mix(first(x) if prenorm else x)[0]
    total = total if prenorm else first(total)
    y = second(total) if prenorm else total
    total = total + block.narrow(functional.gelu(block.widen(y)))
    torch.testing.assert_close(block(x), total if prenorm else second(total))


def test_a_convolution_is_a_sum_of_steps():
    """Feature by feature; padding is no part of what it keeps."""
    block, x = Convolution(5, 3), torch.randn(6, 2, 5)
    taps = torch.cat((block.taps, torch.ones(1, 5))).t().unsqueeze(1)
    padded = functional.pad(x.permute(1, 2, 0), (2, 0))
    sums = functional.conv1d(padded, taps, groups=5).permute(2, 0, 1)
    torch.testing.assert_close(block(x), sums)

    state = block.init_state(2)
    y, after = block(x, torch.tensor([6, 1]), state)
    torch.testing.assert_close(y, sums)
    assert torch.equal(after[0], x[4:, 0])
    assert torch.equal(after[1], torch.stack((torch.zeros(5), x[0, 1])))
    y, after = block(x[:1], None, state)
    y, after = block(x[1:5], None, after)
    assert after.untyped_storage().nbytes() == 4 * after.numel()  # it keeps no other steps
    torch.testing.assert_close(y, sums[1:5])
    y, after = block.step(x[5], after)
    torch.testing.assert_close(y, sums[5])
    assert torch.equal(after, x[4:].transpose(0, 1))


def long_sums(block, x):
    """By torch, in float64."""
    taps = functional.pad(block.taps.double(), (0, 0, 0, 1), value=1.0).t().unsqueeze(1)
    padded = functional.pad(x.double().permute(1, 2, 0), (len(block.taps), 0))
    return functional.conv1d(padded, taps, groups=len(taps)).permute(2, 0, 1)


@pytest.mark.parametrize("steps", [1, 8, 9, 16, 17, 70])
@pytest.mark.parametrize("taps", [LONG, LONG + 1, 17, 34])
def test_a_long_convolution_is_one_of_matrices(taps, steps):
    """In values and gradients what torch's is, for sequences shorter and longer than its taps."""
    block, x = Convolution(3, taps).double(), torch.randn(steps, 2, 3, dtype=torch.float64)
    x.requires_grad_()
    wanted, sums = long_sums(block, x), block(x)
    torch.testing.assert_close(sums, wanted, rtol=1e-13, atol=1e-13)
    weights = torch.randn_like(sums)
    for got, expected in zip(
        torch.autograd.grad((sums * weights).sum(), (x, block.taps)),
        torch.autograd.grad((wanted * weights).sum(), (x, block.taps)),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_a_long_convolution_in_parts_and_steps():
    """From a state, of uneven parts, some of them shorter than its taps."""
    block, x = Convolution(5, 20), torch.randn(90, 2, 5)
    wanted, state, parts = long_sums(block, x).float(), block.init_state(2), []
    for part in x[:89].split([40, 3, 0, 46]):
        y, state = block(part, None, state)
        parts.append(y)
    y, state = block.step(x[89], state)
    torch.testing.assert_close(torch.cat((*parts, y.unsqueeze(0))), wanted)
    assert torch.equal(state, x[-19:].transpose(0, 1))


@pytest.mark.parametrize("given", ["no state", "a state"])
def test_what_is_past_a_length_is_no_part_of_a_long_convolution(given):
    block, x, lengths = Convolution(3, 20), torch.randn(60, 2, 3), torch.tensor([60, 7])
    clean = block(x[:7, 1:])
    state = None if given == "no state" else block.init_state(2)
    x[7:, 1] = float("nan")
    found = block(x, lengths, state)
    y = found if state is None else found[0]
    assert y[:, 0].isfinite().all()
    torch.testing.assert_close(y[:7, 1:], clean)
    if state is not None:
        assert torch.equal(found[1][1], functional.pad(x[:7, 1], (0, 0, 12, 0)))


def test_a_long_convolution_does_not_round_at_every_tap():
    """And passes on the present step in the precision that it came in."""
    block, x = Convolution(4, 65), torch.randn(200, 2, 4)
    wanted = long_sums(block, x)
    half = block(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), wanted, rtol=2e-2, atol=2e-2)
    with torch.autocast("cpu", torch.bfloat16):
        mixed_precision = block(x)
    assert mixed_precision.dtype == torch.float32
    torch.testing.assert_close(mixed_precision.double(), wanted, rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        block.taps.zero_()
    assert torch.equal(block(x), x)


def test_a_convolution_of_half_precision_keeps_what_its_state_is_in():
    """As under autocast: x in bfloat16, the state and the weights in float32."""
    block, x = Convolution(5, 4), torch.randn(6, 2, 5).bfloat16()
    whole, state = block(x), block.init_state(2)
    assert whole.dtype == torch.bfloat16
    for begin, end in ((0, 2), (2, 6)):
        y, state = block(x[begin:end], None, state)
        assert torch.equal(y, whole[begin:end])
        assert state.dtype == torch.float32
    assert torch.equal(block(x, torch.tensor([6, 6]), block.init_state(2))[1], state)


@pytest.mark.parametrize("taps", [2, 4, 33])
def test_convolutions_begin_small(taps):
    x = y = torch.randn(200, 2, 50)
    for _ in range(14):
        y = Convolution(50, taps)(y)
    assert torch.corrcoef(torch.stack((x.flatten(), y.flatten())))[0, 1] > 0.3
    assert y.std() < 4


@pytest.mark.parametrize(
    ("how", "function"),
    [("sigmoid", torch.sigmoid), ("gelu", functional.gelu), ("silu", functional.silu)],
)
def test_glu_variants(how, function):
    y = torch.randn(3, 8)
    torch.testing.assert_close(apply_glu(y, how), y[:, :4] * function(y[:, 4:]))
    assert apply_glu(y, "none") is y


def test_tied_dropout_drops_a_feature_at_all_steps():
    x = Dropout(0.5, per_sequence=True)(torch.ones(10, 4, 8))
    assert (x == x[:1]).all()
    assert 0 < (x == 0).float().mean() < 1
    assert not (x[:, 0] == x[:, 1]).all()  # each sequence has its own
    free = Dropout(0.5, per_sequence=False)(torch.ones(10, 4, 8))
    assert not (free == free[:1]).all()


def test_drop_path_leaves_some_sequences_as_they_were():
    block = build(drop_path=0.5, layers=2, norm="rms").blocks[1]
    x = torch.randn(5, 64, 32)
    skipped = (block(x) == x).all(2)
    assert (skipped == skipped[:1]).all()  # at all steps or none
    assert 0.2 < skipped.float().mean() < 0.8
    assert not (block.eval()(x) == x).all(2).any()


def test_what_drop_path_keeps_is_as_large_as_all_of_it():
    skip = DropPath(0.25).double()
    assert skip.keep_rate.dtype == torch.float32
    y = skip(torch.ones(3, 4000, 2))
    assert y.unique().tolist() == pytest.approx([0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1, abs=0.1)
    assert (DropPath(1.0)(torch.ones(3, 4, 2)) == 0).all()
    assert repr(skip.to("meta")) == "DropPath(0.25)"
    assert skip.to_empty(device="cpu").keep_rate == 0.75


@pytest.mark.parametrize("given", [Tokens(7), Values(3)], ids=["tokens", "values"])
def test_input_dropout_hides_whole_steps_in_training(given):
    model = build(given, input_dropout=0.25)
    x = torch.randint(1, 7, (8, 50)) if isinstance(given, Tokens) else torch.randn(8, 50, 3)
    whole, seen = model.eval()._read(x), model.train()._read(x)
    hidden = (seen == 0).all(2)
    assert 0.15 < hidden.float().mean() < 0.35
    torch.testing.assert_close(seen[~hidden], whole[~hidden] / 0.75)
    assert (model.eval()._read(x) == whole).all()
    assert not torch.equal(model.train()(x), model(x))  # what is hidden makes a difference
    assert torch.equal(model.eval()(x), model(x))


def test_input_dropout_hides_steps_of_streams_too():
    model = build(output=Output(5, "step"), input_dropout=0.5)
    x, state = torch.randint(1, 7, (2, 30)), model.init_state(2)
    assert not torch.equal(model.train()(x, state=state)[0], model(x, state=state)[0])
    assert torch.equal(model.eval()(x, state=state)[0], model(x, state=state)[0])
