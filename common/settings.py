"""Every knob: field, unit in its name, default, bound and the reason for the default.

Order of precedence: default < YAML file < environment `BAKEHOUSE_<KNOB>` < flag. Limits that depend on each other are
checked in one validator.
"""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from common.durations import Seconds
from common.errors import RefusedError
from common.wire import MOST_RETRIES

Priority = Literal["high", "normal", "low"]
Order = Literal["input", "prefix", "length"]
DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"
MIB = 1024 * 1024


class Settings(BaseSettings):
    """All knobs of producer and worker."""

    model_config = SettingsConfigDict(env_prefix="BAKEHOUSE_", frozen=True, extra="forbid")

    redis_url: str | None = Field(
        None, description="Redis or Valkey server; unset: an embedded one for `producer run`."
    )
    redis_password_file: Path | None = Field(
        None, description="File with the password of `redis_url`, not for everybody."
    )
    jobs: Path = Field(Path("jobs"), description="Folder of job directories, on a local disk (SQLite's WAL needs one).")

    batch_size: int = Field(32, ge=1, le=4096, description="Requests a micro-batch: one message's cost shared by 32.")
    batch_tokens: int = Field(16_384, ge=1, description="Estimated tokens a micro-batch: long prompts travel in fewer.")
    batch_growth: float = Field(
        4.0, ge=1, le=64, description="Micro-batches grow so many times where engines are fast. 1 = never."
    )
    batch_timeout_s: float = Field(5.0, gt=0, description="Linger: a micro-batch goes when full or this old.")
    until_idle_s: Seconds = Field(
        0.0, ge=0, description="A growing input ends after so long without a line. 0 = never."
    )
    order: Order = Field("input", description="Order of work inside the window; another one pays in special cases.")
    window_requests: int = Field(8_192, ge=1, description="Least bound on requests fed and without a result.")
    window_bytes: int = Field(256 * MIB, ge=MIB, description="Payload and expected results outstanding in Redis.")
    max_concurrency: int | None = Field(None, ge=1, description="Cap on this job's fed and unfinished requests.")

    request_timeout_s: float = Field(1_800.0, gt=0, description="One attempt of one request; retried once.")
    max_retries: int = Field(
        3, ge=0, le=MOST_RETRIES, description="Retries after the first attempt: 1-(1-p)^(r+1) succeed."
    )
    retry_wait_s: float = Field(1.0, gt=0, description="First wait; doubles each retry: 1, 2, 4 s, +-20 %.")
    drain_timeout_s: float = Field(25.0, ge=0, description="What runs may finish this long when a worker stops.")
    exit_when_idle_s: Seconds = Field(0.0, ge=0, description="A node with nothing to do for so long drains. 0 = never.")
    give_up_after_s: float = Field(3_600.0, ge=0, description="Without any progress for so long: exit 3. 0 = never.")

    renew_s: float = Field(6.0, gt=0, description="A hold is renewed this often.")
    expire_s: float = Field(20.0, gt=0, description="A hold not renewed for so long is lost: three renewals missed.")
    look_s: float = Field(2.0, gt=0, description="The janitor looks this often.")
    publish_s: float = Field(1.0, gt=0, description="Finished results are published this often: what a kill costs.")
    presence_s: float = Field(5.0, gt=0, description="A worker's heartbeat; its key lives 20 s.")
    hang_s: float = Field(60.0, gt=0, description="No engine step with work in flight for so long: the engine is dead.")
    linger_s: float = Field(0.03, ge=0, description="Results are gathered this long, thrice where few come.")

    max_line_bytes: int = Field(16 * MIB, ge=1024, description="Longest input line.")
    visibility_timeout_s: int = Field(6 * 3600, ge=1, description="Celery's; nothing rests on it, hints may repeat.")
    socket_timeout_s: float = Field(10.0, gt=0, description="One Redis call.")
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Prometheus port; unset: off, 0: any free one.")
    metrics_host: str = Field("127.0.0.1", description="Where the metrics port listens.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level logged.")
    log_file: Path | None = Field(None, description="JSON log lines, rotated at 64 MiB, five kept.")
    fail_above: float = Field(0.0, ge=0, le=1, description="Exit 0 while failed/total is at most this share.")
    pause_above: float = Field(
        0.2, ge=0, le=1, description="A job pauses when 5xx pass this share of at least 50 results. 1 = never."
    )
    priority: Priority = Field("normal", description="Order of hints among jobs.")
    deadline: str | None = Field(
        None, description="When all results of a new job are to be there: 07:00 (local, the next one), or ISO 8601."
    )
    gpu_hourly_cost: float | None = Field(None, ge=0, description="Of one GPU; unset: status shows no cost.")

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.expire_s < 3 * self.renew_s:
            raise ValueError(f"expire_s ({self.expire_s}) must be at least 3 x renew_s ({self.renew_s}), or holds flap")
        if self.look_s > self.expire_s / 3:
            raise ValueError(f"look_s ({self.look_s}) must be at most a third of expire_s ({self.expire_s})")
        if self.max_line_bytes > self.window_bytes:
            raise ValueError("max_line_bytes must fit into window_bytes, or such a line could never be fed")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the YAML file."""
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls)


def load(config: Path | None = None, **flags: Any) -> Settings:
    """The settings from `flags` (None = not given), the environment and `config` (YAML), in this order.

    Raises `RefusedError` naming the knob and its bound.
    """
    if config is not None and not config.is_file():
        raise RefusedError("no such configuration file", where=str(config))

    class Configured(Settings):
        model_config = SettingsConfigDict(yaml_file=config)

    try:
        return Configured(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        knob = ".".join(str(part) for part in first["loc"]) or "settings"
        what = "no such knob" if first["type"] == "extra_forbidden" else first["msg"]
        raise RefusedError(f"{knob}: {what}", where=str(config or "flags and environment")) from error
    except (TypeError, ValueError, yaml.YAMLError) as error:
        raise RefusedError(f"the configuration cannot be read: {error}", where=str(config)) from error
