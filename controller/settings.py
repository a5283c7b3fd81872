"""Settings of the controller, from the environment: DYNOFARM_DATABASE_URL and so on."""

import base64
import binascii
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from contract.agent_api import MAX_CLAIM_WAIT_S
from contract.home import DEFAULT_HOME
from controller.states.times import FarmTimes

WILDCARD_HOSTS: Final = frozenset({"0.0.0.0", "::"})
LOOPBACK_HOST: Final = "127.0.0.1"
SESSION_SECRET_BYTES: Final = 32


class Settings(BaseSettings):
    """Parsed once by the composition root and passed in; nothing else reads the environment."""

    model_config = SettingsConfigDict(env_prefix="DYNOFARM_", extra="ignore", frozen=True)

    home: Path = DEFAULT_HOME
    database_url: str = ""
    """Empty: SQLite in the home folder."""
    broker_url: str = "memory://"
    """Celery's broker, for example redis://host:6379/0; memory:// does background work in this process."""
    lease_ttl_s: float = Field(default=60.0, ge=0.3, le=3600)
    margin_min_s: float = Field(default=3.0, ge=0, le=600)
    hold_s: float = Field(default=10.0, ge=0, le=3600)
    accept_s: float = Field(default=30.0, gt=0, le=3600)
    hello_interval_s: float = Field(default=30.0, gt=0, le=600)
    claim_wait_s: float = Field(default=50.0, ge=0, le=MAX_CLAIM_WAIT_S)
    claim_look_s: float = Field(default=5.0, gt=0, le=60)
    """How often waiting claims look into the database although nothing told them to; a new job wakes them."""
    agent_offline_s: float = Field(default=60.0, gt=0, le=3600)
    absent_after_s: float = Field(default=15.0, ge=0, le=3600)
    limit_grace_s: float = Field(default=30.0, ge=0, le=3600)
    retry_backoff_s: float = Field(default=5.0, ge=0, le=3600)
    events_min_interval_s: float = Field(default=0.0, ge=0, le=60)
    """Asks agents to leave at least this much time between two uploads of a stream."""
    max_artifact_bytes: int = Field(default=16 << 20, ge=1, le=1 << 30)
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    public_url: str = ""
    """Address under which people reach this controller, for links in reports; empty: host and port."""
    allowed_hosts: str = "127.0.0.1,localhost"
    """Names, with commas, that the Host header may have: a page elsewhere cannot rebind its name to us."""
    max_body_bytes: int = Field(default=4 << 20, ge=1 << 10, le=1 << 30)
    session_secret: SecretStr = SecretStr("")
    """Base64 of 32 bytes that sign the browser's session; empty: made once and kept in the home folder."""
    cookie_secure: bool = False
    """The session never travels without HTTPS; so it is where `public_url` begins with https."""
    dashboard: bool = True
    """Serve the dashboard beside the API where its extra is installed."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("session_secret")
    @classmethod
    def _is_long_enough(cls, secret: SecretStr) -> SecretStr:
        """Here, where a person still reads what is wrong, and not in the first request."""
        try:
            size_bytes = len(base64.b64decode(secret.get_secret_value(), validate=True))
        except binascii.Error:
            raise ValueError("it is not base64; make one: openssl rand -base64 32") from None
        if 0 < size_bytes < SESSION_SECRET_BYTES:
            raise ValueError(
                f"it has {size_bytes} bytes, at least {SESSION_SECRET_BYTES} are needed; "
                "make one: openssl rand -base64 32"
            )
        return secret

    @property
    def is_embedded(self) -> bool:
        """Whether background work is done in this process."""
        return self.broker_url.startswith("memory://")

    @property
    def home_path(self) -> Path:
        """The home folder, with ~ replaced."""
        return self.home.expanduser()

    @property
    def base_url(self) -> str:
        """The public URL without a slash at its end."""
        return self.public_url.rstrip("/") or f"http://{_in_url(self.host)}:{self.port}"

    @property
    def public_netloc(self) -> str:
        """Host and port of the public URL, as a browser says them in Origin; empty without one."""
        return urlsplit(self.public_url).netloc

    @property
    def session_needs_https(self) -> bool:
        """Whether the session's cookie travels by HTTPS only."""
        return self.cookie_secure or self.public_url.startswith("https://")

    @property
    def local_url(self) -> str:
        """How a process on this machine reaches the controller, whatever stands in front of it."""
        host = LOOPBACK_HOST if self.host in WILDCARD_HOSTS else self.host
        return f"http://{_in_url(host)}:{self.port}"

    @property
    def allowed_host_names(self) -> list[str]:
        """Names that the Host header may have: those allowed, the address listened on, the public one."""
        public = urlsplit(self.public_url).hostname or ""
        # Whatever else is allowed, this machine's own device agent comes by the local address.
        own = LOOPBACK_HOST if self.host in WILDCARD_HOSTS else self.host
        names = [*self.allowed_hosts.split(","), own, public]
        return list(dict.fromkeys(_in_url(name.strip()) for name in names if name.strip()))

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or f"sqlite:///{self.home_path / 'controller.sqlite'}"

    @property
    def times(self) -> FarmTimes:
        """The periods of the lease protocol."""
        return FarmTimes(
            lease_ttl_s=self.lease_ttl_s,
            margin_min_s=self.margin_min_s,
            hold_s=self.hold_s,
            accept_s=self.accept_s,
            hello_interval_s=self.hello_interval_s,
            claim_wait_s=self.claim_wait_s,
            agent_offline_s=self.agent_offline_s,
            absent_after_s=self.absent_after_s,
            limit_grace_s=self.limit_grace_s,
            retry_backoff_s=self.retry_backoff_s,
            events_min_interval_s=self.events_min_interval_s,
        )


def _in_url(host: str) -> str:
    """The host as it stands in a URL and in a Host header: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def wrong_settings(error: ValidationError) -> list[str]:
    """A line for each setting that is wrong, by the name of its variable and without its value."""
    return [
        f"DYNOFARM_{'_'.join(str(part) for part in problem['loc']).upper()}: "
        f"{str(problem['msg']).removeprefix('Value error, ')}"
        for problem in error.errors(include_url=False)
    ]
