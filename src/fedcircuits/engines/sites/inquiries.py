"""What a caller asks sites besides runs: to describe what they hold, and to delete a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Any, TypeVar

from fedcircuits.engines.driving import Data
from fedcircuits.engines.sites.station import Head
from fedcircuits.errors import FederationError, PartyLostError, ProtocolError
from fedcircuits.federation.described import checked_name
from fedcircuits.federation.recipes import unpack
from fedcircuits.version import __version__

T = TypeVar("T")


class SiteInquiries:
    """``answers`` has a queue for every pending question; subclasses define how to send."""

    def __init__(self, sites: Sequence[str]) -> None:
        self.sites = tuple(sites)
        self.answers: dict[str, SimpleQueue[Any]] = {}
        self._asked: dict[str, tuple[str, Head]] = {}

    def send(self, site: str, head: Head, body: Data = b"") -> None:
        raise NotImplementedError

    def describe_all(self, timeout: float = 10.0) -> dict[str, dict[str, Any]]:
        """Descriptions of all sites, asked concurrently; PartyLostError for the first one away."""
        answers = {}
        for site, facts in self.describe_there(self.sites, timeout).items():
            if isinstance(facts, PartyLostError):
                raise facts
            if (theirs := facts.get("version")) != __version__:
                raise FederationError(
                    f"{site} runs fedcircuits {theirs}, expected {__version__} as here: install "
                    "the same version at all sites"
                )
            answers[site] = facts
        return answers

    def describe_there(
        self, sites: Sequence[str], timeout: float
    ) -> dict[str, dict[str, Any] | PartyLostError]:
        """The same, with an error for every site that is away."""

        def asked(site: str) -> dict[str, Any] | PartyLostError:
            try:
                return self.describe(site, timeout)
            except PartyLostError as error:
                return error

        return _at_once(asked, sites)

    def describe(self, site: str, timeout: float = 10.0) -> dict[str, Any]:
        """What a site says it holds."""
        facts = self._answer(site, timeout, "describe")
        try:
            return {**facts, "variables": unpack(facts["variables"])}
        except (KeyError, TypeError, ProtocolError):
            raise PartyLostError(site, f"{site} did not report which columns it holds") from None

    def forget_there(
        self, sites: Sequence[str], model: str, timeout: float
    ) -> dict[str, tuple[bool, str]]:
        """By site, whether it had part of that model and has deleted it; else why not."""

        def asked(site: str) -> tuple[bool, str]:
            try:
                facts = self._answer(site, timeout, "forget", checked_name(model))
            except PartyLostError as error:
                return False, str(error)
            return facts.get("forgotten") is True, str(facts.get("why", ""))

        return _at_once(asked, sites)

    def _answer(self, site: str, timeout: float, what: str, *about: object) -> dict[str, Any]:
        question = token_hex(8)
        answer = self.answers[question] = SimpleQueue()
        self._asked[question] = site, [what, question, *about]
        self.send(*self._asked[question])
        try:
            facts = answer.get(timeout=timeout)
        except Empty:
            raise PartyLostError(
                site, f"{site} has not answered for {timeout:g} s: is it running and connected?"
            ) from None
        finally:
            del self.answers[question], self._asked[question]
        if not isinstance(facts, dict):
            raise PartyLostError(site, f"{site} did not report what it holds")
        return facts

    def ask_again(self, site: str) -> None:
        """Repeat pending questions to a site that has been restarted."""
        for asked, head in list(self._asked.values()):
            if asked == site:
                self.send(site, head)


def _at_once(ask: Callable[[str], T], sites: Sequence[str]) -> dict[str, T]:
    with ThreadPoolExecutor(max(1, len(sites))) as pool:
        return dict(zip(sites, pool.map(ask, sites), strict=True))
