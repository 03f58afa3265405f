"""Sealed messages: the flow does not notice, the carrier reads nothing, no trick goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedcircuits.engines import memory
from fedcircuits.errors import FederationError, MessageError, ProtocolError
from fedcircuits.federation.flow import Envelope, Flow, Program, replay
from fedcircuits.federation.messages import decode_message, encode_message
from fedcircuits.privacy.channels import Handshake, RunKey, Sealed, Session, _signed, sealed
from fedcircuits.privacy.identity import Identity, is_signed
from fedcircuits.testing import check_protocol, trials
from fedcircuits.testing.trials import hear, say
from tests.methods.watched import read, saying
from tests.privacy.parties import key, messages

HELLO = RunKey.tag
PARTIES = ("north", "east", "south")
IDENTITIES = {name: Identity(key(f"identity of {name}")) for name in PARTIES}
KNOWN = {name: identity.public for name, identity in IDENTITIES.items()}
ODD = ["a secret word", 4711, None, {"x": [1, 2]}, np.arange(3.0), {"m": np.eye(2)}]


def said(value: object) -> bytes:
    return encode_message(trials.Anything(value))


def heard_from(parties: tuple[str, ...]) -> Flow[list[Any]]:
    found = []
    for party in parties:
        found.append((yield from hear(party, "talk/back")))
    return found


def talks(me: str) -> Flow[list[Any]]:
    """Odd payloads from north to the others, two tags read in the other order; an answer."""
    if me == "north":
        for i, payload in enumerate(ODD):
            for other in PARTIES[1:]:
                yield from say(other, f"talk/{i % 2}", payload, "a word")
        return list((yield from heard_from(PARTIES[1:])))
    heard = []
    for tag in ("talk/1", "talk/0"):
        for _ in range(3):
            heard.append((yield from hear("north", tag)))
    yield from say("north", "talk/back", f"the secret of {me}", "a word")
    return heard


def covered(programs: dict[str, Program[Any]], run: str = "run 1", **other: Any) -> dict[str, Any]:
    made = {}
    for me, program in programs.items():
        own = {"program": program, "me": me, "identity": IDENTITIES[me], "known": KNOWN}
        made[me] = Program(sealed, own | {"run": run, "key": key(f"{run} {me}")} | other)
    return made


def talking() -> dict[str, Program[Any]]:
    return {me: Program(talks, {"me": me}) for me in PARTIES}


def test_the_flow_does_not_notice() -> None:
    plain, hidden = memory.run(talking()), memory.run(covered(talking()))
    assert not hidden.lost
    for me in PARTIES:
        expected, found = plain.results[me], hidden.results[me]
        assert [said(p) for p in found] == [said(p) for p in expected]


def test_laws_of_protocols() -> None:
    """Among them replay: with a key a party sends the same bytes again."""
    check_protocol(covered(talking()), run=memory.run, without=("losses",))


def test_losses_reach_the_program() -> None:
    """A program that goes on without a lost party does so under seals, too."""
    programs: dict[str, Program[Any]] = {
        "north": Program(trials.fail, {"to": "east", "words": 5}),
        "east": Program(trials.hear_until_lost, {"sender": "north", "tell": "south"}),
        "south": Program(trials.take, {"sender": "east", "tags": ["fail/heard"]}),
    }
    outcome = memory.run(covered(programs))
    assert list(outcome.lost) == ["north"] and outcome.results["south"] == [5]


def test_a_party_that_never_comes_is_heard_of_by_the_program() -> None:
    programs = covered(
        {
            "north": Program(trials.fail, {"to": "east", "words": 5}),
            "east": Program(trials.hear_until_lost, {"sender": "north", "tell": "south"}),
            "south": Program(trials.take, {"sender": "east", "tags": ["fail/heard"]}),
        }
    )
    outcome = memory.run(programs | {"north": Program(trials.keep, {"table": 0})})
    heard, blamed = outcome.results["east"]
    assert heard == 0 and blamed.startswith("north|") and outcome.results["south"] == [0]


def test_the_carrier_sees_sizes_only() -> None:
    """No piece of eight bytes of any payload is in what crosses; bodies are 16 bytes longer."""
    _, plain = messages(talking())
    _, hidden = messages(covered(talking()))
    for me in PARTIES:
        carried = [m for m in hidden[me] if m.tag != HELLO]
        crossed = b"|".join(unwrapped(m).body for m in carried)
        for before, after in zip(plain[me], carried, strict=True):
            assert (before.party, before.tag) == (after.party, after.tag)
            assert len(unwrapped(after).body) == len(before.data) + 16
            pieces = {before.data[i : i + 8] for i in range(max(1, len(before.data) - 7))}
            assert not [p for p in pieces if p in crossed and len(p) == 8]


def unwrapped(message: Envelope) -> Sealed:
    return decode_message(Sealed, message.data, "", message.tag)


def test_what_crosses() -> None:
    outcome = memory.run(covered(talking()))
    hellos = [e for e in outcome.ledger if e.tag == HELLO]
    size = len(encode_message(RunKey(bytes(32), bytes(64))))
    assert len(hellos) == 6 and {e.bytes for e in hellos} == {size}
    assert {e.reveals for e in outcome.ledger if e.tag != HELLO} == {"a word"}


def test_the_same_words_never_look_the_same() -> None:
    def crossed(run: str) -> list[bytes]:
        _, sent = messages(covered(talking(), run))
        return [m.data for own in sent.values() for m in own if m.tag != HELLO]

    both = crossed("run 1") + crossed("run 2")
    assert len(set(both)) == len(both)


# ---------------------------------------------------------------------- tricks on the way


def tricked(tag: str, change: Callable[[Any], Any], sender: str = "north") -> Any:
    """A run in which what the sender sends under a tag is changed on the way."""
    made = covered(talking())
    told = {"program": made[sender], "tag": tag, "change": change}
    return memory.run(made | {sender: Program(saying, told)})


@pytest.mark.parametrize(
    ("field", "at"), [("number", 0), ("number", 7), ("body", 0), ("body", 12), ("body", -1)]
)
def test_changed_messages(field: str, at: int) -> None:
    def flipped(fields: Any) -> Any:
        changed = bytearray(fields[field])
        changed[at] ^= 1
        return fields | {field: bytes(changed)}

    outcome = tricked("talk/1", flipped)
    text = str(outcome.lost["east"])
    assert "'talk/1' from north to east has a broken seal: it was altered" in text


@pytest.mark.parametrize("size", [0, 5, 15])
def test_cut_messages(size: int) -> None:
    def cut(fields: Any) -> Any:
        return fields | {"body": fields["body"][:size]}

    text = str(tricked("talk/1", cut).lost["south"])
    assert "'talk/1' from north to south has a broken seal" in text


@pytest.mark.parametrize("plain", [{}, {"word": "in the clear"}, {"number": b"1"}])
def test_plain_messages(plain: Any) -> None:
    lost = tricked("talk/1", lambda p: plain).lost["south"]
    assert "north sent 'talk/1' that does not fit" in str(lost) and lost.party == "north"


def test_messages_sent_again_or_out_of_place() -> None:
    first: dict[int, Any] = {}

    def again(payload: Any) -> Any:
        """Always the first of its receiver: north writes to the two in turn."""
        count = len(first)
        first[count] = payload
        return first[count % 2]

    assert "'talk/1' from north to east was received before: someone" in str(
        tricked("talk/1", again).lost["east"]
    )
    held: list[Any] = []

    def swapped(payload: Any) -> Any:
        """East gets what is for south."""
        held.append(payload)
        return held[-1] if len(held) == 1 else held[0]

    assert "'talk/1' from north to south has a broken seal" in str(
        tricked("talk/1", swapped).lost["south"]
    )


def test_messages_left_out_or_under_another_tag() -> None:
    ends = sessions()
    one, two = ends["north"].seal("a/b", b"one"), ends["north"].seal("a/b", b"two")
    with pytest.raises(ProtocolError, match="'a/b' from north to east has a broken seal"):
        ends["east"].unseal("a/b", two)  # the first is missing
    with pytest.raises(ProtocolError, match="'c/d' from north to east has a broken seal"):
        ends["east"].unseal("c/d", one)
    assert ends["east"].unseal("a/b", one) == b"one" and ends["east"].unseal("a/b", two) == b"two"
    with pytest.raises(ProtocolError, match="to north has a broken seal"):
        ends["north"].unseal("a/b", one)  # sent back to its sender


def sessions() -> dict[str, Session]:
    """Both ends between north and east."""
    sides = {me: Handshake.of(me, IDENTITIES[me], KNOWN, "run 1", key(me)) for me in PARTIES}
    return {
        me: sides[me].session(other, sides[other].hello())
        for me, other in (("north", "east"), ("east", "north"))
    }


def test_numbers_of_messages_are_never_used_twice() -> None:
    session = sessions()["north"]
    numbers = [session.seal(f"t/{i % 3}", b"x").number for i in range(50)]
    used = session.sent.total()
    assert len(set(numbers)) == 50 and used >= 50


# ---------------------------------------------------------------------- who is who


def test_another_identity() -> None:
    made = covered(talking())
    wrong = made["north"].arguments | {
        "identity": Identity.fresh(),
        "known": {n: k for n, k in KNOWN.items() if n != "north"},
    }
    outcome = memory.run(made | {"north": Program(sealed, wrong)})
    text = str(outcome.lost["east"])
    assert "the key that east got from north for run 'run 1' is not signed by the identity" in text
    assert set(outcome.lost) >= {"east", "south"} and not outcome.results


def test_a_hello_of_another_run() -> None:
    _, old = messages(covered(talking(), "run 0"))
    recorded = next(read(m.data) for m in old["north"] if m.tag == HELLO)
    text = str(tricked(HELLO, lambda p: recorded).lost["east"])
    assert "from north for run 'run 1' is not signed" in text
    made = covered(talking())
    made["north"] = covered(talking(), "run 0")["north"]
    assert "not signed" in str(memory.run(made).lost["south"])


def test_a_key_that_gives_no_secret() -> None:
    """A point of small order, signed as it should be."""
    east = Handshake.of("east", IDENTITIES["east"], KNOWN, "run 1", key("east"))
    told = _signed("run 1", "north", bytes(32))
    hello = RunKey(bytes(32), IDENTITIES["north"].sign(told))
    with pytest.raises(
        MessageError, match=r"north sent 'seal/hello' .* key that yields no shared secret"
    ):
        east.session("north", hello)


def test_a_key_that_is_not_known() -> None:
    known = {n: k for n, k in KNOWN.items() if n != "south"}
    made = covered(talking(), known=known)
    text = str(memory.run({n: made[n] for n in ("north", "east")} | made).lost["north"])
    assert "north has no public key of south, so 'talk/0' cannot be sealed: ask south" in text


def test_identities() -> None:
    identity = Identity.fresh()
    assert is_signed(identity.public, identity.sign(b"word"), b"word")
    assert not is_signed(identity.public, identity.sign(b"word"), b"other")
    assert not is_signed(b"short", b"", b"word")
    assert identity.private.hex() not in repr(identity)
    with pytest.raises(FederationError, match="a private key of 5 bytes: expected 32"):
        Identity(b"short")
    flow = sealed(talking()["north"], "north", identity, KNOWN, "run 1")
    with pytest.raises(
        FederationError, match="known public key of north does not match its identity"
    ):
        next(flow)


def test_replay_from_an_inbox() -> None:
    made = covered(talking())
    outcome = memory.run(made)
    assert not outcome.lost
    _, sent = messages(made)
    inbox = [Envelope("north", m.tag, m.data) for m in sent["north"] if m.party == "east"]
    hello = next(m for m in sent["south"] if m.tag == HELLO and m.party == "east")
    order = [inbox[0], Envelope("south", HELLO, hello.data)]
    for tag in ("talk/1", "talk/0"):
        order += [m for m in inbox if m.tag == tag]
    assert replay(made["east"], order) == sent["east"]
