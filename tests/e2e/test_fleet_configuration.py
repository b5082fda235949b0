"""Errors in the table `[fleet]`: each one line with file and position, and the documented exit code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.fleet import new_secret
from harness.gateway import SITE, Gateway
from harness.waiting import DEADLINE_SECONDS

SECRETS = 'secrets = "secrets"'
REDIS = 'redis = ["redis://127.0.0.1:1"]'
WITH_SESSIONS = f"{SECRETS}\n[fleet.sessions]\n"

MALFORMED = 65
MISSING = 66
"""Exit codes of docs/gateway/README.md."""


def tried(command: str, gateway: Gateway, fleet: str) -> subprocess.CompletedProcess[str]:
    gateway.write(SITE + '[[sites.routes]]\nrespond = "here"\n', server=f"[fleet]\n{fleet}")
    arguments = {"check": ["check", gateway.file], "run": ["run", "-c", gateway.file]}[command]
    return subprocess.run(
        [str(part) for part in [gateway.command()[0], *arguments]],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def secrets(gateway: Gateway, content: str | None = None, mode: int = 0o600) -> Path:
    file = gateway.folder / "secrets"
    file.write_text(content or new_secret())
    file.chmod(mode)
    return file


def line_of(gateway: Gateway, key: str) -> int:
    lines = gateway.file.read_text().splitlines()
    return 1 + next(at for at, line in enumerate(lines) if line.startswith(key))


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("fleet", "at", "says"),
    [
        (f"[fleet.sessions]\n{REDIS}", "[fleet.sessions]", "need shared secrets"),
        (f"{SECRETS}\n[fleet.sessions]", "[fleet.sessions]", "missing address of Redis"),
        (f'{WITH_SESSIONS}redis = ["http://cache:1"]', "redis", "scheme is unknown"),
        (f'{WITH_SESSIONS}redis = ["cache:6379"]', "redis", "no scheme"),
        (
            f'{WITH_SESSIONS}{REDIS}\nsentinel = "primary"\ncluster = true',
            "cluster",
            "a Redis Cluster has no Sentinels",
        ),
        (f'{WITH_SESSIONS}{REDIS}\ntimeout = "0s"', "timeout", "invalid time to wait for Redis"),
        (f'{WITH_SESSIONS}{REDIS}\ntimeout = "11s"', "timeout", "from 1ms to 10s"),
        (f"{WITH_SESSIONS}{REDIS}\nreplicas = 101", "replicas", "at most 100"),
        (f'{WITH_SESSIONS}{REDIS}\nprefix = "{{a}}"', "prefix", "without braces"),
        (
            f'{WITH_SESSIONS}redis = ["redis://127.0.0.1:1/3"]\ncluster = true',
            "redis",
            "only the database 0",
        ),
        (f'{WITH_SESSIONS}{REDIS}\ntrust = "none.pem"', "trust", "none.pem"),
        (f'node = "a b"\n{SECRETS}', "node", "invalid name of a server"),
        ('secrets = "redis"', "secrets", "need the Redis of the sessions"),
        ('secrets = ""', "secrets", "no file"),
        ("secret = 1", "secret", "unknown"),
    ],
)
def test_wrong_setting_is_reported_with_its_line(gateway, command, fleet, at, says):
    secrets(gateway)
    done = tried(command, gateway, fleet)
    expected = MISSING if "none.pem" in says else MALFORMED
    assert says in done.stderr
    assert f"pronghorn.toml:{line_of(gateway, at)}:" in done.stderr
    assert done.returncode == expected, done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    ("content", "mode", "says", "code"),
    [
        (None, 0o640, "accessible to other users (mode 640); run chmod 600", MALFORMED),
        ("short\n", 0o600, "invalid secret in line 1: 5 characters", MALFORMED),
        ("# none\n", 0o600, "no secret", MALFORMED),
        ("00" * 32, 0o600, "weak secret in line 1", MALFORMED),
        ("\n".join(new_secret() for _ in range(5)), 0o600, "5 secrets, at most 4", MALFORMED),
    ],
)
def test_unusable_secrets_are_reported_with_the_line_of_their_file(
    gateway, command, content, mode, says, code
):
    file = secrets(gateway, content, mode)
    done = tried(command, gateway, f"{WITH_SESSIONS}{REDIS}")
    assert says in done.stderr
    assert str(file) in done.stderr
    assert f"pronghorn.toml:{line_of(gateway, 'secrets')}:" in done.stderr
    assert content is None or content.strip()[:20] not in done.stderr or len(content) < 20
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("command", ["check", "run"])
def test_missing_file_of_secrets_is_reported(gateway, command):
    done = tried(command, gateway, f"{WITH_SESSIONS}{REDIS}")
    assert "cannot read the secrets in" in done.stderr
    assert f"pronghorn.toml:{line_of(gateway, 'secrets')}:" in done.stderr
    assert done.returncode == MISSING, done.stderr
