"""A shard's share of a whole, by halving.

Shard k of 2N is the larger half of shard k of N, shard k+N the smaller, so bit i of the shard number says which
half it got when the count went from 2**i to 2**(i+1). Shares of any whole add up to it exactly, at every count.
"""


def share(whole: int, shard: int, shard_count: int) -> int:
    """Return what of ``whole`` falls to one shard out of ``shard_count``, a power of two."""
    doublings = shard_count.bit_length() - 1
    for doubling in range(doublings):
        whole = whole // 2 if shard >> doubling & 1 else (whole + 1) // 2
    return whole


def least_whole(part: int, shard: int, shard_count: int) -> int:
    """Return the smallest whole of which the shard's share is at least ``part``."""
    doublings = shard_count.bit_length() - 1
    for doubling in reversed(range(doublings)):
        part = part * 2 if shard >> doubling & 1 else part * 2 - 1
    return part
