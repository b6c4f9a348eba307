"""The post offices: what each one promises about order, and that nothing is lost."""

import pytest

from broker.mail import PostOffice, ShuffledPostOffice

PAIRS = [(sender, to) for sender in range(3) for to in (7, 8)]


def post_everything(office: PostOffice, count: int = 20) -> list[tuple[int, int, bytes]]:
    posted = [(sender, to, b"%d" % n) for n in range(count) for sender, to in PAIRS]
    for sender, to, frame in posted:
        office.post(sender, to, frame)
    return posted


def empty(office: PostOffice) -> list[tuple[int, int, bytes]]:
    received = []
    while (found := office.next()) is not None:
        to, letter = found
        received.append((letter.sender, to, letter.frame))
    return received


def test_the_plain_office_keeps_the_whole_order() -> None:
    office = PostOffice()
    assert office.next() is None
    posted = post_everything(office)
    assert empty(office) == posted


@pytest.mark.parametrize("seed", range(5))
def test_the_shuffled_office_keeps_each_pair_in_order_and_loses_nothing(seed: int) -> None:
    office = ShuffledPostOffice(seed)
    posted = post_everything(office)
    received = empty(office)
    assert received != posted
    assert sorted(received) == sorted(posted)
    for pair in PAIRS:
        assert [m for m in received if m[:2] == pair] == [m for m in posted if m[:2] == pair]
    assert office.next() is None


def test_the_shuffle_follows_from_its_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        office = ShuffledPostOffice(seed)
        post_everything(office)
        orders.append(empty(office))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_every_pair_can_be_first() -> None:
    firsts = set()
    for seed in range(200):
        office = ShuffledPostOffice(seed)
        post_everything(office, count=1)
        firsts.add(empty(office)[0])
    assert len(firsts) == len(PAIRS)


@pytest.mark.parametrize("office", [PostOffice(), ShuffledPostOffice(3)])
def test_the_sending_end_signs_with_its_owner(office: PostOffice) -> None:
    office.mail_of(5).send(6, b"hello")
    assert empty(office) == [(5, 6, b"hello")]
