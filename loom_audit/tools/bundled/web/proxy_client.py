"""Questions to the server proxy, asked again when the failure may pass."""

from typing import TYPE_CHECKING, Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_exponential_jitter

from loom_audit.errors import AuditError, ExecutionFailed

if TYPE_CHECKING:
    import httpx

ATTEMPTS = 4
FIRST_WAIT = 0.5
"""Seconds before the second attempt; doubled for each one after it."""

_TRANSIENT = frozenset({408, 425, 429, 502, 503, 504})


class TransientFailure(ExecutionFailed):
    """A failure of the proxy that another attempt may not meet."""


async def ask(url: str, path: str, body: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the proxy's answer to a JSON body, within `seconds` for each attempt.

    ExecutionFailed, an AuditError, when no proxy is set, when it refuses, and when every attempt
    failed.
    """
    import httpx

    if not url:
        raise ExecutionFailed(
            "No proxy is configured for web search and the oracle",
            hint="Go on without it, or ask the person to start `loom-audit proxy` and to put its "
            "address into tools.toml as proxy_url.",
        )
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(TransientFailure),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_exponential_jitter(multiplier=FIRST_WAIT, max=8, jitter=FIRST_WAIT / 2),
        reraise=True,
    )
    async with httpx.AsyncClient(timeout=seconds, trust_env=False) as client:
        async for attempt in retrying:
            with attempt:
                return await _post_once(client, url.rstrip("/") + path, body)
    raise ExecutionFailed("The proxy was not asked")


async def _post_once(client: "httpx.AsyncClient", url: str, body: dict[str, Any]) -> dict[str, Any]:
    import httpx

    try:
        response = await client.post(url, json=body)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise ExecutionFailed(
            f"proxy_url is not an address: {error}", hint="Correct proxy_url in tools.toml."
        ) from error
    except httpx.HTTPError as error:
        raise TransientFailure(
            f"The proxy cannot be asked: {str(error) or type(error).__name__}",
            hint="Is `loom-audit proxy` running at proxy_url?",
        ) from error
    try:
        said = response.json()
    except (ValueError, RecursionError):
        said = None
    if response.status_code == 200 and isinstance(said, dict):
        return said
    raise _error_of(response.status_code, said)


def _error_of(status: int, said: Any) -> AuditError:
    known = said if isinstance(said, dict) else {}
    message = str(known.get("message", f"The proxy answered {status}"))[:500]
    details = {"status": status, "reason": str(known.get("code", ""))[:100]}
    made = TransientFailure if status in _TRANSIENT else ExecutionFailed
    return made(message, details=details)
