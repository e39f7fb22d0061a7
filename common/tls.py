"""TLS towards Redis: what a `rediss://` address asks for, checked once, as redis-py and Celery each want to be told.

`rediss://user@host:6379/0?ssl_ca_certs=/etc/bakehouse/ca.pem`; without a file the machine's own authorities are asked.
The server's certificate and its name are always checked.
"""

import os
import ssl
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from common.errors import RefusedError

FILES = frozenset({"ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"})
"""Whom to trust (a file, or a folder of them), and who we are where the server asks for that."""
_NEVER_LESS = {"ssl_cert_reqs": "required", "ssl_check_hostname": "true"}


def tls_options(url: str) -> dict[str, Any] | None:
    """What `url` says of TLS, for redis-py and Celery; None where it is no `rediss://`.

    Raises `RefusedError`: a file that cannot be read, an unknown option, or one that would take any server for ours.
    """
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return None
    options: dict[str, Any] = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_check_hostname": True}
    for name, value in parse_qsl(parts.query):
        if name in FILES:
            _check_readable(name, value)
            options[name] = value
        elif name in _NEVER_LESS and value.lower() != _NEVER_LESS[name]:
            do = "name its certificate, or the authority that signed it, as ssl_ca_certs"
            raise RefusedError(f"{name}={value} would take any server for this one", do=do)
        elif name.startswith("ssl_") and name not in _NEVER_LESS:
            raise RefusedError(f"no such option of TLS: {name}", do=f"one of {', '.join(sorted(FILES))}")
    return options


def without_tls_options(url: str) -> str:
    """`url` as Celery wants it: it is told of TLS apart."""
    parts = urlsplit(url)
    kept = [pair for pair in parts.query.split("&") if not pair.startswith("ssl_")]
    return parts._replace(query="&".join(kept)).geturl()


def untrusted(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate's refusal that `error` came from, if it did."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _check_readable(name: str, path: str) -> None:
    if not os.access(path, os.R_OK):
        raise RefusedError(f"{name} cannot be read", where=path, do="check the path, and who may read it")
