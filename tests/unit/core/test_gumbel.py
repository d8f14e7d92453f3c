import math
from decimal import Decimal, getcontext

import numpy as np
import pytest

from outrider.core.coupling import gumbel, noise, philox, seeded_draw
from tests.local.laws import g_test

KNOWN_ANSWERS = [  # of Random123, kat_vectors, philox4x32 with 10 rounds: counter, key, output
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]

# seed, choice, position, token -> noise. They fix the text of every seeded request for ever.
VECTORS: list[tuple[int, int, int, int, float]] = [
    (0, 0, 0, 0, 0.08482025135306243),
    (7, 0, 5, 42, 0.310473854456725),
    (18446744073709551615, 0, 1, 49151, -0.7497941052253413),
    (9223372036854775808, 3, 4095, 0, 0.4248603720248459),
    (123456789, 4294967295, 4294967295, 4294967295, 0.03800964322053776),
    (1, 0, 17, 198, 3.4393158425396666),
    (1, 1, 17, 198, -0.857985499049021),
    (4294967296, 0, 17, 198, 1.7804739778430672),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_random123s_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    words = [np.uint64(word) for word in (*counter, *key)]
    assert tuple(int(word) for word in philox(*words)) == expected


@pytest.mark.parametrize(("seed", "choice", "position", "token", "expected"), VECTORS)
def test_noise_is_that_of_the_stored_vectors(
    seed: int, choice: int, position: int, token: int, expected: float
) -> None:
    assert gumbel(seed, choice, position, np.array([token]))[0] == expected


@pytest.mark.parametrize(("seed", "choice", "position", "token", "expected"), VECTORS)
def test_stored_vectors_follow_from_the_formula(
    seed: int, choice: int, position: int, token: int, expected: float
) -> None:
    """Once more in integers and 50 decimal digits, without the code under test."""
    getcontext().prec = 50
    words = philox_in_integers((choice, position, token, 0), (seed & 0xFFFFFFFF, seed >> 32))
    k = ((words[0] << 32) | words[1]) >> 11
    u = (Decimal(k) + Decimal("0.5")) / Decimal(2**53)
    assert float(-(-u.ln()).ln()) == pytest.approx(expected, rel=1e-15)


def philox_in_integers(counter: tuple[int, ...], key: tuple[int, int]) -> tuple[int, ...]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c3 ^ k1, a & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


@pytest.mark.parametrize(
    ("k", "expected"),
    [(0, -math.log(54 * math.log(2))), (2**53 - 1, 54 * math.log(2))],
)
def test_noise_at_both_ends_of_the_uniform_is_finite(k: int, expected: float) -> None:
    assert noise(k) == pytest.approx(expected, rel=1e-15)


def test_noise_of_a_token_does_not_depend_on_its_neighbours() -> None:
    together = gumbel(5, 1, 9, np.arange(100))
    alone = [gumbel(5, 1, 9, np.array([token]))[0] for token in (0, 17, 99)]
    assert together[[0, 17, 99]].tolist() == alone


def test_every_part_of_the_counter_and_the_key_changes_the_noise() -> None:
    base = (2**33 + 5, 1, 9)
    others = [
        (2**33 + 6, 1, 9),
        (2**34 + 5, 1, 9),
        (2**33 + 5, 2, 9),
        (2**33 + 5, 1, 10),
        (2**33 + 5, 9, 1),
    ]
    noise = {tuple(gumbel(*args, np.arange(4)).tolist()) for args in [base, *others]}
    assert len(noise) == 6
    assert len({x for row in noise for x in row}) == 24


P = np.array([0.3, 0.0, 0.05, 0.2, 0.01, 0.0, 0.4, 0.04])


@pytest.mark.parametrize("varied", ["seed", "position", "choice"])
def test_seeded_draws_follow_p(varied: str) -> None:
    arguments = {"seed": 3, "choice": 0, "position": 7}
    counts = np.zeros(P.size)
    for value in range(20_000):
        counts[seeded_draw(P, **{**arguments, varied: value})] += 1
    assert g_test(counts, P) > 1e-4
    assert g_test(counts, np.roll(P, 1)[::-1]) < 1e-6


def test_a_token_without_mass_is_never_drawn_and_a_single_one_always() -> None:
    one = np.eye(8)[5]
    assert {seeded_draw(one, seed, 0, 0) for seed in range(50)} == {5}
    assert not {seeded_draw(P, seed, 0, 0) for seed in range(2000)} & {1, 5}


def test_two_laws_close_to_each_other_mostly_draw_the_same_token() -> None:
    """What seeded drafting lives on: the same noise on a nearby law mostly gives the same token."""
    q = P * np.array([1.1, 1, 0.9, 0.95, 1.2, 1, 1.0, 0.8])
    q /= q.sum()
    agree = np.mean(
        [seeded_draw(P, seed, 0, 1) == seeded_draw(q, seed, 0, 1) for seed in range(2000)]
    )
    assert agree > 0.9
    other = np.mean(
        [seeded_draw(P, seed, 0, 1) == seeded_draw(q, seed, 0, 2) for seed in range(2000)]
    )
    assert other < 0.45
