"""One party of one run with messages over a network: its mailbox, and the loop of its flow.

Networks may reorder messages, and a restarted party sends again what it had sent. Every message of
one party to another is therefore numbered, from 0 in every run. A mailbox delivers messages in that
order, once each.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, MutableMapping
from threading import Condition
from typing import Any, Protocol, TypeAlias

from fedcircuits.engines.outcome import check_other_party, waiting_for, waits
from fedcircuits.errors import PartyLostError
from fedcircuits.federation.flow import Compute, Effect, Program, Recv, Send, Tell, driven

Data: TypeAlias = bytes | memoryview
SLOW = 0.5  # seconds of waiting before the caller is notified


class NumberedMail:
    """Messages of one run to one party, by sender and tag, and who will send no more."""

    def __init__(self) -> None:
        self._mail: dict[tuple[str, str], deque[Data]] = defaultdict(deque)
        self._early: dict[str, dict[int, tuple[str, Data]]] = defaultdict(dict)
        self._next: Counter[str] = Counter()
        self._ends: dict[str, tuple[int, str]] = {}
        self._over = ""
        self._broken: Exception | None = None
        self._changed = Condition()

    def put(self, sender: str, number: int, tag: str, data: Data) -> bool:
        """Whether it is new; it is delivered once all before it have arrived."""
        with self._changed:
            early = self._early[sender]
            if number < self._next[sender] or number in early:
                return False
            early[number] = tag, data
            while (message := early.pop(self._next[sender], None)) is not None:
                self._mail[sender, message[0]].append(message[1])
                self._next[sender] += 1
            self._changed.notify_all()
            return True

    def lacks(self, sender: str, number: int) -> bool:
        """Whether it is new."""
        with self._changed:
            return number >= self._next[sender] and number not in self._early[sender]

    def is_empty(self, wanted: Recv) -> bool:
        """Whether no such message has arrived."""
        with self._changed:
            return not self._mail[wanted.sender, wanted.tag]

    def received(self, sender: str) -> int:
        """How many of its messages are here, without a gap."""
        return self._next[sender]

    def end(self, sender: str, count: int, reason: str) -> None:
        """After this many messages of the sender none will follow."""
        with self._changed:
            self._ends.setdefault(sender, (count, reason))
            self._changed.notify_all()

    def end_all(self, reason: str) -> None:
        """No message of anybody will follow."""
        with self._changed:
            self._over = self._over or reason
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Mail can no longer be kept here: everybody who waits gets this error."""
        with self._changed:
            self._broken = error
            self._changed.notify_all()

    def take(
        self, me: str, wanted: Recv, timeout: float, slow: Callable[[str], None] | None = None
    ) -> Data:
        """The next one, or PartyLostError. ``slow`` is called if the wait takes long."""
        box = self._mail[wanted.sender, wanted.tag]

        def over() -> object:
            return box or self._broken or self._ended(wanted.sender)

        with self._changed:
            here = self._changed.wait_for(over, min(SLOW, timeout))
        if not here and slow is not None:
            slow(waiting_for(wanted))
        with self._changed:
            self._changed.wait_for(over, timeout)
            if self._broken is not None:
                raise self._broken
            if box:
                return box.popleft()
            late = f"it is running but has sent nothing for {timeout:g} s"
            reason = self._ended(wanted.sender) or late
        raise PartyLostError(wanted.sender, waits(me, wanted, reason))

    def _ended(self, sender: str) -> str:
        """Why nothing more will come from it, "" if something may."""
        count, reason = self._ends.get(sender, (0, ""))
        return reason if reason and self._next[sender] >= count else self._over


class Outgoing(Protocol):
    """Where a party's messages and progress go."""

    def send(self, effect: Send, number: int) -> None: ...

    def at(self, step: str) -> None: ...

    def tell(self, news: Tell) -> None: ...


class Driver:
    """The loop of one flow; ``kept`` has the results of computations by name."""

    def __init__(
        self,
        me: str,
        members: frozenset[str],
        mail: NumberedMail,
        post: Outgoing,
        kept: MutableMapping[str, object],
        timeout: float,
    ) -> None:
        self.me, self.members, self.mail, self.post = me, members, mail, post
        self.kept, self.timeout = kept, timeout
        self.sent: Counter[str] = Counter()  # messages by receiver
        self.at = "its first step"

    def drive(self, program: Program[Any]) -> object:
        """What the flow returns; errors are its own."""
        return driven(program.start(), self._do)

    def _do(self, effect: Effect) -> object:
        if isinstance(effect, Compute):
            return self._compute(effect)
        if isinstance(effect, Tell):
            self.post.tell(effect)
            return None
        sends = isinstance(effect, Send)
        other = effect.receiver if isinstance(effect, Send) else effect.sender
        self.at = f"{'sending' if sends else 'waiting for'} {effect.tag!r} " + (
            f"to {other}" if sends else f"from {other}"
        )
        check_other_party(self.me, effect, self.members)
        if isinstance(effect, Recv):
            return self.mail.take(self.me, effect, self.timeout, self.post.at)
        self.post.send(effect, self.sent[other])
        self.sent[other] += 1
        return None

    def _compute(self, effect: Compute[object]) -> object:
        self.at = effect.step
        if effect.name not in self.kept:
            self.post.at(effect.step)
            self.kept[effect.name] = effect.work()
        return self.kept[effect.name]
