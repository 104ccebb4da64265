"""Sums of sinusoids on devices without float64, such as Apple's GPUs: decisions as in float64.

Phases and waves are 64-bit integers, which every device has; no sum is rounded in float32:

1. The phase ``ω t``, reduced to a turn, is a product of integers. float64 rounds this product, so
   the same rounding is added to it (:func:`turns`).
2. sin and cos come from a table of 256 angles and a short series (:func:`sin_cos`), to about
   2^-45.
3. Waves and weights are written with digits of 8 bits. Sums of products of digits are integers
   below 2^24, so that a float32 matrix product is exact (:func:`exact_products`).

The result differs from the exact sum by about 1e-13, as the float64 result does by about 1e-15; its
sign is the same unless a sum is that close to 0. Gradients are those of the float32 formula.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

# The first bits of 2 / pi.
_TWO_OVER_PI = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163
_BITS = 216
_ONE = 1 << 47
_DIGITS, _LEVELS = 6, 7
# The most waves in one product: (levels) * (waves) * 128 * 128 stays below 2^24.
_MOST_WAVES = 144


def wave_sums(
    t: Tensor, omega: Tensor | tuple[float, ...], amplitude: Tensor, phase: Tensor, bias: Tensor
) -> Tensor:
    """``b_i + Σ_k α_ik sin(ω_k t + φ_ik)`` [..., G] in float32 at integer time steps t [...].

    Args:
        t: int64 time steps, 0 to 2^50.
        omega: K numbers, or a float32 tensor [K] if they are learned.
        amplitude: float32 [G, K].
        phase: float32 [G, K].
        bias: float32 [G].
    """
    learned = isinstance(omega, Tensor)
    numbers = tuple(omega.tolist()) if learned else omega
    sin, cos = sin_cos(turns(t, constants(numbers, t.device)))
    with torch.no_grad():
        exact = _exact_sums(sin, cos, amplitude, phase, bias)
    parameters = (amplitude, phase, bias, *([omega] if learned else []))
    if not torch.is_grad_enabled() or not any(p.requires_grad for p in parameters):
        return exact
    sin, cos = sin.float() / _ONE, cos.float() / _ONE
    if learned:  # zero, with the derivative of the angle
        turn = (omega - omega.detach()) * t.unsqueeze(-1).float()
        sin, cos = sin + cos * turn, cos - sin * turn
    by_sin = functional.linear(sin, amplitude * phase.cos(), bias)
    a = by_sin + functional.linear(cos, amplitude * phase.sin())
    return (a - a.detach()) + exact


# ---------------------------------------------------------------------------- phases


class Constants(NamedTuple):
    """Angular frequencies ω = m / 2^s with 53-bit integers m, as tensors [K]."""

    high: Tensor
    """ω / 2π modulo 1: the first 64 bits."""
    low: Tensor
    """The 25 bits after these."""
    m_high: Tensor
    m_low: Tensor
    """m = 2^27 m_high + m_low."""
    unit: Tensor
    """2^-s / 2π, float32: the turn of one unit of m."""


@cache
def constants(omega: tuple[float, ...], device: torch.device) -> Constants:
    """The integers of these frequencies, computed in Python's own."""
    rows = []
    for number in omega:
        fraction, exponent = math.frexp(number)
        m, s = int(fraction * 2**53), 53 - exponent
        turn = ((m * _TWO_OVER_PI) >> (s + _BITS + 2 - 89)) % (1 << 89)
        unit = 2.0**-s / (2 * math.pi)
        rows.append((_signed(turn >> 25), turn & (2**25 - 1), m >> 27, m & (2**27 - 1), unit))
    *integers, units = zip(*rows, strict=True)
    with torch.inference_mode(False):  # later callers may train with the cached tensors
        high, low, m_high, m_low = (torch.tensor(c, device=device) for c in integers)
        unit = torch.tensor(units, dtype=torch.float32, device=device)
        return Constants(high, low, m_high, m_low, unit)


def _signed(number: int) -> int:
    """The 64-bit integer with these bits."""
    return number - (1 << 64) if number >= 1 << 63 else number


def turns(t: Tensor, omega: Constants) -> Tensor:
    """The float64 product ω t as a share of a turn, [..., K] in units of 2^-64.

    Integers wrap around as turns do.
    """
    t = t.unsqueeze(-1)
    t_high, t_low = t >> 25, t & (2**25 - 1)
    exact = t * omega.high + t_high * omega.low + ((t_low * omega.low) >> 25)
    rounding = _rounding(t_high, t_low, omega).float() * omega.unit  # in turns
    whole = torch.floor(rounding * 2.0**24)
    rest = rounding * 2.0**24 - whole
    return exact + (whole.long() << 40) + (rest * 2.0**40).long()


def _rounding(t_high: Tensor, t_low: Tensor, omega: Constants) -> Tensor:
    """The rounding error of the product m t in float64: 53 bits, half to even."""
    ends = omega.m_high * t_low, omega.m_low * t_high
    low = ((ends[0] & (2**25 - 1)) << 27) + ((ends[1] & (2**27 - 1)) << 25) + omega.m_low * t_low
    high = omega.m_high * t_high + (ends[0] >> 25) + (ends[1] >> 27) + (low >> 52)
    low = low & (2**52 - 1)  # m t = 2^52 high + low
    dropped = _bit_length(high) - 1  # bits past the first 53
    unit = torch.ones_like(low) << dropped.clamp(min=0)
    rest = low & (unit - 1)
    odd = (low & unit) != 0
    up = (2 * rest > unit) | ((2 * rest == unit) & odd)
    return torch.where(up, unit - rest, -rest)


def _bit_length(x: Tensor) -> Tensor:
    """The bit length of integers from 0 to 2^52."""
    length = torch.zeros_like(x)
    for bits in (32, 16, 8, 4, 2, 1):
        large = x >> bits > 0
        length = length + large * bits
        x = torch.where(large, x >> bits, x)
    return length + x


def turns_of_radians(angle: Tensor) -> Tensor:
    """float32 angles as shares of a turn, in units of 2^-64."""
    coarse = torch.floor(angle * 2.0**16)
    fine = ((angle * 2.0**16 - coarse) * 2.0**40).long()  # in units of 2^-56
    coarse = coarse.long()
    per_turn = _TWO_OVER_PI >> (_BITS + 2 - 72)  # 2^72 / 2π, for a coarse unit of 2^-16
    whole = coarse * (per_turn >> 24) + ((coarse * (per_turn & (2**24 - 1))) >> 24)
    return whole + 2 * _product(fine << 7, _TWO_OVER_PI >> (_BITS + 2 - 47))


# ---------------------------------------------------------------------------- waves


def _product(a: Tensor, b: Tensor | int) -> Tensor:
    """a b / 2^47 of integers up to 2^48."""
    a_high, a_low, b_high, b_low = a >> 24, a & (2**24 - 1), b >> 24, b & (2**24 - 1)
    middle = a_high * b_low + a_low * b_high + ((a_low * b_low) >> 24)
    return ((a_high * b_high) << 1) + (middle >> 23)


@cache
def _table(device: torch.device) -> Tensor:
    """sin of 320 angles, 2π / 256 apart, in units of 2^-47: cos is 64 places further."""
    with torch.inference_mode(False):
        return torch.tensor([_table_entry(j) for j in range(320)], device=device)


def _table_entry(j: int) -> int:
    """2^47 sin(2π j / 256), within one unit: float64 has 53 bits."""
    return round(math.sin(math.pi * (j % 256) / 128) * _ONE)


def sin_cos(turn: Tensor) -> tuple[Tensor, Tensor]:
    """sin and cos of turns in units of 2^-64, in units of 2^-47."""
    nearest = ((turn >> 55) + 1) >> 1  # -128 to 128
    rest = (turn - (nearest << 56)) >> 9  # up to 1/512 of a turn, in units of 2^-55
    small = _product(rest, round(2 * math.pi / 256 * _ONE))
    square = _product(small, small)
    cube = _product(small, square)
    fifth = _product(cube, square)
    by_sin = small - _product(cube, round(_ONE / 6)) + _product(fifth, round(_ONE / 120))
    fourth = _product(square, square)
    by_cos = _ONE - (square >> 1) + _product(fourth, round(_ONE / 24))
    table, place = _table(turn.device), nearest & 255
    sin, cos = table[place], table[place + 64]
    return (
        _product(sin, by_cos) + _product(cos, by_sin),
        _product(cos, by_cos) - _product(sin, by_sin),
    )


# ---------------------------------------------------------------------------- sums


def _exact_sums(sin: Tensor, cos: Tensor, amplitude: Tensor, phase: Tensor, bias: Tensor) -> Tensor:
    bound = 1.5 * amplitude.abs().sum(-1) + bias.abs()
    scale = 4 * _power_of_two_below(bound)  # [G]: no sum is as large
    by_sin, by_cos = sin_cos(turns_of_radians(phase))
    share = (amplitude / scale[:, None] * _ONE).long()
    level = (bias / scale * _ONE).long()
    weights = torch.cat((_product(share, by_cos), _product(share, by_sin), level[:, None]), -1)
    one = torch.full_like(sin[..., :1], _ONE)
    total = exact_products(torch.cat((sin, cos, one), -1), weights)  # in units of 2^-62
    return total.float() * (scale * 2.0**-62)


def _power_of_two_below(x: Tensor) -> Tensor:
    """The largest power of two up to x, a positive float32 number; a tiny one for 0."""
    x = x.clamp(min=2.0**-60)
    return (x.view(torch.int32) & 0x7F800000).view(torch.float32)


def exact_products(waves: Tensor, weights: Tensor) -> Tensor:
    """Sums of products in units of 2^-62: waves [..., K] times weights [G, K], both up to 2^47."""
    parts = zip(waves.split(_MOST_WAVES, -1), weights.split(_MOST_WAVES, -1), strict=True)
    return torch.stack([_exact_part(wave, weight) for wave, weight in parts]).sum(0)


def _exact_part(waves: Tensor, weights: Tensor) -> Tensor:
    first, second = _digits(waves), _digits(weights)
    total = None
    for level in range(_LEVELS):  # digits i and level - i
        chosen = [i for i in range(_DIGITS) if 0 <= level - i < _DIGITS]
        left = torch.cat([first[i] for i in chosen], -1)
        right = torch.cat([second[level - i] for i in chosen], -1)
        term = functional.linear(left, right).round().long() << (48 - 8 * level)
        total = term if total is None else total + term
    assert total is not None
    return total


def _digits(x: Tensor) -> list[Tensor]:
    """Six digits from -128 to 128 of integers up to 2^47, the first the highest, as float32."""
    digits = []
    for _ in range(_DIGITS - 1):
        digit = ((x + 128) & 255) - 128
        digits.append(digit.float())
        x = (x - digit) >> 8
    return [x.float(), *digits[::-1]]
