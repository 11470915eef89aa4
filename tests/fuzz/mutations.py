# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategy: bytes that began as something valid, after a few accidents."""

from hypothesis import strategies as st

_PIECE = st.one_of(
    st.binary(max_size=6),
    st.sampled_from(
        [b"\0", b"\xff", b"\xed\xa0\x80", b'"', b"\\", b"{", b"[", b"9" * 20, b"-1", b"1e9", b"null", b"\n"]
    ),
)


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Draw something valid with one to four pieces replaced, put in, taken out or repeated."""
    data = draw(valid)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.integers(0, 8)))
        kept = draw(st.sampled_from(["replaced", "repeated", "cut"]))
        piece = data[begin:end] * 2 if kept == "repeated" else draw(_PIECE)
        data = data[:begin] + piece + (b"" if kept == "cut" else data[end:])
    return data
