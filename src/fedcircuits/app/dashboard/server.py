"""The dashboard's pages and answers, over HTTP.

    GET  /                       the page, with its script and style beside it (assets/)
    GET  /api/start              what there is: the model's columns, events, sites
    POST /api/marginals|within   evidence → distributions of all columns, what crossed
    POST /api/averages           evidence, columns → means of these numbers, or of all
    POST /api/event              evidence, event → its probability
    POST /api/completed          evidence → the most probable row
    POST /api/samples            evidence, number, seed → rows as csv, what crossed
    GET  /api/samples.csv        the same rows as a file
    GET  /api/events             events of a training from a place in its file
    GET  /api/model, circuit.svg, site

Whoever reaches the page may ask the model whatever it answers, so it is served to this machine
alone, or to those who have its token. Requests with another host's name in their head are refused,
so that no page of elsewhere can point a name at this server; so are questions that come from pages
of another origin. The page loads nothing from elsewhere and may not (its content policy).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fedcircuits.app import events
from fedcircuits.app.screen import one_line
from fedcircuits.errors import FedcircuitsError, QueryError

if TYPE_CHECKING:  # what a training is watched without
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from fedcircuits.app.dashboard.desk import Desk

ASSETS = Path(__file__).parent / "assets"
COOKIE = "fedcircuits_token"
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
MOST_BODY = 1 << 20  # bytes of a question
Plain = dict[str, object]


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a dashboard; any of them may be absent."""

    path: Path | None = None
    desk: Desk | None = field(default=None, repr=False)
    events: Path | None = None
    site: Path | None = None


def application(shown: Shown, hosts: Sequence[str], token: str = "") -> Starlette:
    """The web application; ``hosts``: allowed host names; ``token``: required from callers, if
    any."""
    pages = _Pages(shown)
    routes = [
        Route("/", pages.page),
        Route("/api/start", _answered(pages.start)),
        Route("/api/marginals", _answered(pages.marginals), methods=["POST"]),
        Route("/api/within", _answered(pages.within), methods=["POST"]),
        Route("/api/averages", _answered(pages.averages), methods=["POST"]),
        Route("/api/event", _answered(pages.event), methods=["POST"]),
        Route("/api/completed", _answered(pages.completed), methods=["POST"]),
        Route("/api/samples", _answered(pages.samples), methods=["POST"]),
        Route("/api/samples.csv", _answered(pages.file_of_samples)),
        Route("/api/events", _answered(pages.events)),
        Route("/api/model", _answered(pages.model)),
        Route("/api/circuit.svg", _answered(pages.circuit)),
        Route("/api/site", _answered(pages.site)),
        Mount("/assets", StaticFiles(directory=ASSETS)),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        Middleware(_Gate, token=token),
        Middleware(GZipMiddleware, minimum_size=2000),
    ]
    return Starlette(routes=routes, middleware=middleware)


# ---------------------------------------------------------------------- who may ask


class _Gate:
    """Admits callers with the token, and requests from this origin only."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, headed)

    def _refusal(self, request: Request) -> Response | None:
        if _from_elsewhere(request):
            return PlainTextResponse("requests from other web pages are refused", 403)
        if not self.token:
            return None
        given = request.query_params.get("token")
        if given is not None and self._fits(given):
            response = RedirectResponse(request.url.path, 303)
            response.set_cookie(COOKIE, given, httponly=True, samesite="strict")
            return response
        if given is None and self._fits(request.cookies.get(COOKIE, "")):
            return None
        wrong = "the token is wrong" if given is not None else "a token is needed"
        text = f"{wrong}: open the address that fedcircuits dashboard printed"
        return PlainTextResponse(text, 403)

    def _fits(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self.token.encode())


def _from_elsewhere(request: Request) -> bool:
    """Whether a page of another origin asks. Its images and scripts send no origin, but browsers
    send their site; only the page itself may be opened from elsewhere."""
    origin = request.headers.get("origin")
    try:
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return True
    except ValueError:
        return True
    place = request.headers.get("sec-fetch-site", "none")
    return place not in ("none", "same-origin") and request.url.path != "/"


# ---------------------------------------------------------------------- answers

Asked = Callable[[Request, Plain], Plain | Response]


def _answered(function: Asked) -> Callable[[Request], Awaitable[Response]]:
    """The answer of a function as JSON; errors of the caller become one line."""

    async def endpoint(request: Request) -> Response:
        try:
            said: Plain = await _said(request) if request.method == "POST" else {}
            answer = await run_in_threadpool(function, request, said)
        except ClientDisconnect:  # a page that was closed: nobody is there to be told
            return Response(status_code=400)
        except (FedcircuitsError, OSError) as error:
            return JSONResponse({"error": one_line(str(error))}, 400)
        return answer if isinstance(answer, Response) else JSONResponse(answer)

    return endpoint


async def _said(request: Request) -> Plain:
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_BODY:
            raise QueryError(f"a question has at most {MOST_BODY:,} bytes")
    return _object(data.decode("utf-8", "replace"))


def _object(text: str) -> Plain:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise QueryError("a question is a JSON object")
    return content


def _known(said: Plain) -> Plain:
    known = said.get("known", {})
    if not isinstance(known, dict):
        raise QueryError("'known' is a JSON object: evidence by column")
    return known


class _Pages:
    def __init__(self, shown: Shown) -> None:
        self.shown = shown

    @property
    def desk(self) -> Desk:
        if self.shown.desk is None:
            raise QueryError("no model is shown here: fedcircuits dashboard MODEL.fc")
        return self.shown.desk

    @property
    def path(self) -> Path:
        return self.shown.path or Path("model.fc")

    async def page(self, request: Request) -> Response:
        return Response((ASSETS / "index.html").read_bytes(), media_type="text/html")

    def start(self, request: Request, said: Plain) -> Plain:
        shown = self.shown
        return {
            "file": None if shown.path is None else shown.path.name,
            "columns": None if shown.desk is None else shown.desk.columns(),
            "target": None if shown.desk is None else getattr(shown.desk.model, "target", None),
            "events": None if shown.events is None else shown.events.name,
            "site": None if shown.site is None else shown.site.name,
        }

    def marginals(self, request: Request, said: Plain) -> Plain:
        return self.desk.marginals(_known(said))

    def within(self, request: Request, said: Plain) -> Plain:
        return self.desk.marginals(_known(said), within=True)

    def averages(self, request: Request, said: Plain) -> Plain:
        columns = said.get("columns")
        if columns is not None and not isinstance(columns, list):
            raise QueryError("'columns' is a list of names")
        return self.desk.averages(_known(said), columns)

    def event(self, request: Request, said: Plain) -> Plain:
        return self.desk.event(_known(said), str(said.get("event", "")))

    def completed(self, request: Request, said: Plain) -> Plain:
        return self.desk.completed(_known(said))

    def samples(self, request: Request, said: Plain) -> Plain:
        return self._drawn(_known(said), said.get("number", 10), said.get("seed", 0))

    def file_of_samples(self, request: Request, said: Plain) -> Response:
        asked = request.query_params
        known = _object(asked.get("known", "{}"))
        rows = self._drawn(known, asked.get("number", "10"), asked.get("seed", "0"))
        name = {"Content-Disposition": 'attachment; filename="samples.csv"'}
        return Response(str(rows["csv"]), media_type="text/csv", headers=name)

    def _drawn(self, known: Plain, number: object, seed: object) -> Plain:
        try:
            many, start = int(str(number)), int(str(seed))
        except ValueError:
            raise QueryError("number and seed are whole numbers") from None
        if start < 0:
            raise QueryError(f"seed is a whole number from 0, got {start}")
        return self.desk.drawn(known, many, start)

    def events(self, request: Request, said: Plain) -> Plain:
        if self.shown.events is None:
            raise QueryError("no training is watched here: fedcircuits dashboard RUN.jsonl")
        try:
            start = int(request.query_params.get("from", "0"))
        except ValueError:
            raise QueryError("'from' is a whole number") from None
        news, next_place = events.read_from(self.shown.events, start)
        quiet = events.quiet_for(self.shown.events)
        return {"events": news, "next": next_place, "anew": next_place < start, "quiet": quiet}

    def model(self, request: Request, said: Plain) -> Plain:
        from fedcircuits.app.dashboard import overview

        return overview.describe(self.path, self.desk.model)

    def circuit(self, request: Request, said: Plain) -> Response:
        from fedcircuits.app.dashboard import overview

        return Response(overview.picture(self.path, self.desk.model), media_type="image/svg+xml")

    def site(self, request: Request, said: Plain) -> Plain:
        if self.shown.site is None:
            raise QueryError("no site is shown here: fedcircuits dashboard KIT")
        from fedcircuits.app.dashboard import overview

        return overview.of_site(self.shown.site)
