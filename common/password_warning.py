"""The warning about a password that everybody on this machine can read: a command line is no secret."""

from common.log import Event, get_logger
from common.secret_file import shows_password

log = get_logger(__name__)


def warn_of_shown(url: str | None) -> None:
    """Warn when `url`, as it was given by a flag, has a password in it."""
    if shows_password(url):
        log.warning(
            Event.PASSWORD_SHOWN,
            reason="--redis-url has a password, and every list of processes shows it",
            do="give BAKEHOUSE_REDIS_PASSWORD_FILE, or the URL as BAKEHOUSE_REDIS_URL",
        )
