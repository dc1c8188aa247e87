"""One question to a registry over HTTP, and the errors that it can end with."""

from __future__ import annotations

import base64
import functools
import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any, Final, NamedTuple

from ..documents import DocumentError, read_json
from ..errors import ConfigurationError
from .address import Registry
from .errors import RegistryAwayError

TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024

_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_OK, _NOT_FOUND, _TOO_MANY = 200, 404, 429
_REFUSED: Final = (401, 403)


class RegistryAnswer(NamedTuple):
    """Status 200 and a document, or 404 and what the registry says of it."""

    status: int
    document: dict[str, Any]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like others: the password is for this registry alone."""

    def redirect_request(self, *told: object) -> None:
        return None


def ask(registry: Registry, path: str) -> RegistryAnswer:
    """GET a path of the registry.

    Raises:
        RegistryAwayError: it does not answer, or with a status that may pass (429, 5xx).
        ConfigurationError: it refuses the login, or it is no registry.
    """
    try:
        with _opener(registry).open(_request(registry, path), timeout=TIMEOUT_S) as response:
            status, body = response.status, response.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, _body_of(error)
    except (OSError, http.client.HTTPException) as error:
        if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
            raise _wrong(
                registry, f"its certificate is not trusted: {error} ({registry.words.ca})"
            ) from None
        raise RegistryAwayError(f"the registry {registry.url} does not answer: {error}") from None
    return _answer(registry, path, status, body)


def _answer(registry: Registry, path: str, status: int, body: bytes) -> RegistryAnswer:
    if status in _REFUSED:
        raise _wrong(
            registry,
            f"it refuses the login (status {status}): {registry.words.user}, {registry.words.password}",
        )
    if status == _TOO_MANY or status >= 500:
        raise RegistryAwayError(f"the registry {registry.url} answers with status {status}")
    if status not in (_OK, _NOT_FOUND):
        raise _wrong(registry, f"it answers {path} with status {status}; is this its address?")
    if len(body) > ANSWER_BYTES_MAX:
        raise _wrong(registry, f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    try:
        document = read_json(body)
    except DocumentError:
        document = None
    if not isinstance(document, dict) or (status == _NOT_FOUND and "error_code" not in document):
        raise _wrong(
            registry, f"it does not answer {path} as a registry does; is this its address?"
        )
    return RegistryAnswer(status, document)


def _wrong(registry: Registry, what: str) -> ConfigurationError:
    return ConfigurationError(f"{registry.words.before}the registry {registry.url}: {what}")


def _body_of(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read(ANSWER_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException):
        return b""  # the status says enough


def _request(registry: Registry, path: str) -> urllib.request.Request:
    request = urllib.request.Request(registry.url + path, headers={"Accept": _ACCEPT})  # noqa: S310
    if registry.user:
        login = base64.b64encode(f"{registry.user}:{registry.password}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
    return request


@functools.cache
def _of_system() -> ssl.SSLContext:
    """Trust in the authorities of this machine; to read them takes longer than all else of a request."""
    return ssl.create_default_context()


def _opener(registry: Registry) -> urllib.request.OpenerDirector:
    try:
        context = ssl.create_default_context(cafile=registry.ca) if registry.ca else _of_system()
    except OSError as error:
        raise ConfigurationError(
            f"{registry.words.before}{registry.words.ca!r} {registry.ca!r}: {error.strerror or error}"
        ) from None
    return urllib.request.build_opener(_NoRedirects, urllib.request.HTTPSHandler(context=context))
