"""Keys and where a process may listen: the parts of each member, hidden secrets, refused endpoints."""

import os
import pickle
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from broker.ids import MAX_RANK
from broker.mail.kinds import MAIL_KINDS
from broker.security import AgentKeys, BrokerKeys, JobKeys, KeyPair, LauncherKeys, SipKeys, check_bind, is_loopback

KEYS = JobKeys.fresh(3, 2)
PARTS = {
    "pair": KEYS.broker,
    "job": KEYS,
    "sip": KEYS.for_sip(1),
    "broker": KEYS.for_broker(),
    "launcher": KEYS.for_launcher(),
    "agent": KEYS.for_agent(1),
}
SECRETS = [pair.secret for pair in (KEYS.broker, KEYS.launcher, *KEYS.sips, *KEYS.agents)]


def publics(*pairs: KeyPair) -> tuple[str, ...]:
    return tuple(pair.public for pair in pairs)


def test_each_member_receives_its_own_pair_and_the_public_keys_of_its_peers() -> None:
    for rank in range(3):
        assert KEYS.for_sip(rank) == SipKeys(KEYS.sips[rank], KEYS.broker.public, publics(*KEYS.sips))
    assert KEYS.for_broker() == BrokerKeys(KEYS.broker, KEYS.launcher.public, publics(*KEYS.sips))
    assert KEYS.for_launcher() == LauncherKeys(KEYS.launcher, KEYS.broker.public, publics(*KEYS.agents))
    for number in range(2):
        assert KEYS.for_agent(number) == AgentKeys(KEYS.agents[number], KEYS.launcher.public)


def test_all_pairs_differ_within_and_between_runs() -> None:
    pairs = [KEYS.broker, KEYS.launcher, *KEYS.sips, *KEYS.agents]
    again = JobKeys.fresh(3, 2)
    pairs += [again.broker, again.launcher, *again.sips, *again.agents]
    assert len(set(publics(*pairs))) == len({pair.secret for pair in pairs}) == 14


@pytest.mark.parametrize("part", PARTS)
def test_no_secret_is_ever_shown(part: str) -> None:
    rich = StringIO()
    Console(file=rich, width=10_000).print(PARTS[part])
    for shown in (repr(PARTS[part]), str(PARTS[part]), f"{PARTS[part]}", f"{[PARTS[part]]}", rich.getvalue()):
        assert "hidden" in shown
        assert not [secret for secret in SECRETS if secret in shown]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_travels_as_json_and_holds_no_other_secret(part: str) -> None:
    keys = PARTS[part]
    text = msgspec.json.encode(keys)
    assert msgspec.json.decode(text, type=type(keys)) == keys
    assert pickle.loads(pickle.dumps(keys)) == keys
    held = [secret for secret in SECRETS if secret in msgspec.json.decode(text, type=dict).__repr__()]
    assert len(held) == {"job": len(SECRETS)}.get(part, 1)


@pytest.mark.parametrize(
    "halves",
    [
        {"public": KEYS.broker.public, "secret": KEYS.launcher.secret},
        {"public": KEYS.broker.secret, "secret": KEYS.broker.secret},
        {"public": KEYS.broker.public, "secret": "#" * 40},
        {"public": KEYS.broker.public, "secret": ""},
        {"public": KEYS.broker.public[:39], "secret": KEYS.broker.secret},
        {"public": KEYS.broker.public, "secret": KEYS.broker.secret + "\n"},
        {"public": KEYS.broker.public, "secret": KEYS.broker.secret[:39] + "é"},
        {"public": KEYS.broker.public, "secret": 7},
        {"public": KEYS.broker.public},
        {"public": KEYS.broker.public, "secret": KEYS.broker.secret, "more": 1},
    ],
)
def test_a_damaged_pair_is_refused_and_not_shown(halves: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(halves, KeyPair)
    assert not [half for half in halves.values() if isinstance(half, str) and half and half in str(refused.value)]


# --- where a process may listen ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "private"
    made.mkdir(mode=0o700)
    yield made
    made.chmod(0o700)


@pytest.mark.parametrize("scheme", ["ipc", "unix"])
@pytest.mark.parametrize("mode", [0o700, 0o500, 0o300])
def test_a_private_folder_is_allowed(folder: Path, scheme: str, mode: int) -> None:
    folder.chmod(mode)
    check_bind(f"{scheme}://{folder}/broker", None)
    check_bind(f"{scheme}://{folder}/broker", KEYS.for_broker())


@pytest.mark.parametrize("scheme", ["ipc", "unix"])
@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o740, 0o702, 0o755, 0o777, 0o1777, 0o2750])
def test_a_folder_that_other_users_can_enter_is_refused(folder: Path, scheme: str, mode: int) -> None:
    folder.chmod(mode)
    with pytest.raises(ValueError, match=r"other users can enter .* run chmod 0700 ") as refused:
        check_bind(f"{scheme}://{folder}/broker", KEYS.for_broker())
    assert "\n" not in str(refused.value)


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.security.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ValueError, match=f"belongs to user {os.getuid()}; use a folder of your own"):
        check_bind(f"ipc://{folder}/broker", None)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("ipc://@name", "every user of this host"),
        ("ipc://", "every user of this host"),
        ("unix://@name", "every user of this host"),
        ("ipc:///no/such/folder/x", "cannot read /no/such/folder: No such file"),
        ("ipc:///dev/null/x", "/dev/null is not a folder"),
        ("broker", "is no endpoint; write ipc://PATH"),
        ("", "no endpoint"),
    ],
)
def test_an_endpoint_outside_any_folder_is_refused(endpoint: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_bind(endpoint, KEYS.for_broker())


LOOPBACK = ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"]
BEYOND = [
    "*", "0.0.0.0", "[::]", "10.0.0.7", "192.168.1.1", "example.org", "lo", "eth0", "127.0.0.1.example.org",
    "localhost.", "[::ffff:10.0.0.1]", "127.1", "", "[fe80::1]", "2130706433", "0x7f.1",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
def test_loopback_without_keys_only_on_request(host: str) -> None:
    endpoint = f"tcp://{host}:*"
    assert is_loopback(endpoint)
    check_bind(endpoint, None, plain_loopback=True)
    check_bind(endpoint, KEYS.for_broker())
    with pytest.raises(ValueError, match="every user of this host could connect without keys; give keys, or use ipc"):
        check_bind(endpoint, None)


@pytest.mark.parametrize("host", BEYOND)
def test_beyond_this_host_only_with_keys(host: str) -> None:
    endpoint = f"tcp://{host}:5"
    assert not is_loopback(endpoint)
    check_bind(endpoint, KEYS.for_sip(0))
    with pytest.raises(ValueError, match="other hosts could connect without keys") as refused:
        check_bind(endpoint, None, plain_loopback=True)
    assert str(refused.value).startswith(f"{endpoint}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["udp", "ws", "pgm", "inproc"])
def test_other_schemes_need_keys(scheme: str) -> None:
    with pytest.raises(ValueError, match="without keys"):
        check_bind(f"{scheme}://somewhere:1", None)


@pytest.mark.parametrize("kind", MAIL_KINDS)
def test_no_mail_listens_in_a_folder_that_other_users_can_enter(kind: str, folder: Path) -> None:
    folder.chmod(0o711)
    mail, endpoint = MAIL_KINDS[kind], MAIL_KINDS[kind].local(f"{folder}/x")
    for listens in (lambda: mail.broker(endpoint), lambda: mail.sip(0, endpoint, endpoint)):
        with pytest.raises(ValueError, match="other users can enter"):
            listens()
    if kind == "zmq":
        with pytest.raises(ValueError, match="other users can enter"):
            mail.broker(endpoint, KEYS.for_broker())
    else:
        with pytest.raises(ValueError, match="other users can enter"):
            mail.launcher(endpoint)


@pytest.mark.parametrize("host", ["0.0.0.0", "*"])
def test_no_mail_listens_beyond_this_host_without_keys(host: str) -> None:
    mail, endpoint = MAIL_KINDS["zmq"], f"tcp://{host}:*"
    with pytest.raises(ValueError, match="other hosts could connect"):
        mail.broker(endpoint)
    with pytest.raises(ValueError, match="other hosts could connect"):
        mail.sip(0, "tcp://127.0.0.1:9", endpoint)


def test_a_link_is_judged_by_its_folder(folder: Path, tmp_path: Path) -> None:
    """A link into a private folder is allowed."""
    link = tmp_path / "link"
    link.symlink_to(folder)
    check_bind(f"ipc://{link}/broker", None)
    folder.chmod(0o755)
    with pytest.raises(ValueError, match="other users can enter"):
        check_bind(f"ipc://{link}/broker", None)


def test_ranks_have_a_limit() -> None:
    assert MAX_RANK == 4095
    many = {"own": msgspec.to_builtins(KEYS.broker), "broker": KEYS.broker.public, "sips": [KEYS.broker.public] * 4097}
    with pytest.raises(msgspec.ValidationError, match="length <= 4096"):
        msgspec.convert(many, SipKeys)
