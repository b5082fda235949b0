"""A gateway whose keys are on signers or in a security module, and its clients."""

from __future__ import annotations

import ssl
import subprocess
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from aioquic.asyncio.client import connect
from aioquic.h3.connection import H3_ALPN
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from .addresses import own_address
from .admin import metrics
from .certificates import pem, sign
from .clients.aioquic_h3 import H3Client, h3_connection
from .clients.h2_frames import H2Client
from .gateway import Gateway
from .process import Process
from .server import Server
from .signer import Signer
from .waiting import DEADLINE_SECONDS

FROM_SIGNER = ["signer:vault"]
"""The keys of a site."""

PATIENT = "60s"
"""Time for a signature in tests in which no signature may time out, on any machine."""


class Edge:
    """The files of a gateway: the site 127.0.0.1 has a key of its own, the site localhost has its
    key elsewhere. Both are on one listener.
    """

    def __init__(self, gateway: Gateway):
        self.gateway = gateway
        self.folder = gateway.folder
        (self.folder / "signer").mkdir()
        self.signer = Signer(self.folder / "signer")
        self.authority = ec.generate_private_key(ec.SECP256R1())
        ca = sign("Sites", self.authority, "Sites", self.authority, is_ca=True)
        self.ca = self.folder / "sites-ca.pem"
        self.ca.write_bytes(pem(ca))
        self.leaves: dict[str, x509.Certificate] = {}
        here = ec.generate_private_key(ec.SECP256R1())
        self.issue("here", here)
        self.write_key("here", here)
        for kind in ("p256", "rsa", "p384"):
            self.issue(kind, self.signer.keys[kind])

    def issue(self, name: str, key) -> None:
        """Writes a certificate for the key, but not the key."""
        self.leaves[name] = sign("localhost", key, "Sites", self.authority, is_ca=False)
        (self.folder / f"{name}.pem").write_bytes(pem(self.leaves[name]))

    def write_key(self, name: str, key) -> None:
        self.signer.write_key(f"../{name}-key.pem", key)

    def write(
        self,
        keys: list[str],
        *,
        cert: str = "p256",
        signers: dict[str, list[str]] | None = None,
        timeout: str = PATIENT,
        respond: str = "elsewhere",
        limits: str = "",
    ) -> None:
        """Writes the configuration. `signers`: addresses by name."""
        tables = "".join(
            f"""[fleet.signers.{name}]
addresses = {addresses!r}
server_name = "localhost"
cert = "signer/gateway.pem"
key = "signer/gateway-key.pem"
trust = "signer/ca.pem"
timeout = "{timeout}"
"""
            for name, addresses in (signers or {}).items()
        )
        self.gateway.write(
            f"""[limits]
handshake_timeout = "120s"
{limits}
{tables}
[[sites]]
hosts = ["127.0.0.1"]
tls = {{ cert = "here.pem", key = "here-key.pem" }}
[[sites.routes]]
respond = "here"

[[sites]]
hosts = ["localhost"]
tls = {{ cert = "{cert}.pem", keys = {keys!r} }}
[[sites.routes]]
respond = "{respond}"
""",
            server='state_dir = "state"',
        )

    def signer_command(self, *, listen: str = "127.0.0.1:0") -> list[str | Path]:
        config = self.signer.config().replace("127.0.0.1:0", listen)
        # Several signers of a test must not share the socket.
        config = config.replace('[admin]\nlisten = "unix:admin.sock"\n', "")
        return self.signer.command(config)

    def metrics(self) -> dict[str, float]:
        return metrics(self.folder / "state" / "admin.sock")

    def key(self, metric: str, source: str, cert: str = "p256") -> int:
        """Returns a metric of a place of a key. `source` is the last part of the place's name."""
        found = [
            value
            for series, value in self.metrics().items()
            if series.startswith(f'pronghorn_key_{metric}{{certificate="{self.folder}/{cert}.pem",')
            and series.endswith(f'{source}"}}')
        ]
        assert len(found) == 1, (metric, source, found)
        return int(found[0])


class RunningSigner:
    """A `pronghorn signer` that comes back on the same address."""

    def __init__(self, edge: Edge):
        self.edge = edge
        # No other test uses the address while the signer is away.
        self.address = own_address()
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        self.process = Process(self.edge.signer_command(listen=self.address))
        self.process.wait_for_lines(r"^serving ")


class Client:
    """Connections to a running gateway."""

    def __init__(self, edge: Edge, server: Server):
        self.edge = edge
        self.server = server
        self.port = server.port

    def h2(self, host: str = "localhost") -> H2Client:
        return H2Client(f"https://{host}:{self.port}", self.edge.ca)

    def h3(self, host: str = "localhost") -> AbstractAsyncContextManager[H3Client]:
        # With the name localhost, the client might use IPv6.
        return h3_connection(
            f"https://127.0.0.1:{self.port}", self.edge.ca, idle_timeout=120, server_name=host
        )

    def fetch(self, host: str = "localhost", path: str = "/") -> bytes:
        """Fetches over a new HTTP/2 connection."""
        with self.h2(host) as connection:
            return connection.fetch(path).body

    def is_served(self, host: str = "localhost") -> bool:
        """Returns whether a new connection is served."""
        try:
            return bool(self.fetch(host))
        except (ssl.SSLError, ConnectionError):
            return False

    async def fetch_h3(self, host: str = "localhost") -> bytes:
        async with self.h3(host) as connection:
            connection.authority = f"{host}:{self.port}"
            return (await connection.fetch("/")).body

    async def close_code(self) -> int:
        """Returns the code with which the server closes a QUIC connection in its handshake."""
        configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name="localhost")
        configuration.load_verify_locations(str(self.edge.ca))
        async with connect(
            "127.0.0.1",
            self.port,
            configuration=configuration,
            create_protocol=H3Client,
            wait_connected=False,
        ) as connection:
            connection.transmit()
            return (await connection.wait_terminated()).error_code

    def openssl(self, *flags: str, host: str = "localhost") -> str:
        """Returns what `openssl s_client` prints about a handshake, and of its failure. It sends
        no name if `host` is empty.
        """
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}"]
        command += ["-servername", host] if host else ["-noservername"]
        command += ["-CAfile", str(self.edge.ca), *flags]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=DEADLINE_SECONDS)
        return (done.stdout + done.stderr).decode(errors="replace")


def pending(client: Client) -> subprocess.Popen:
    """Starts a handshake that the test waits for later."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{client.port}"]
    command += ["-servername", "localhost", "-CAfile", str(client.edge.ca)]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def shown(output: str) -> bytes:
    """Returns the certificate that `openssl s_client` prints, in DER form."""
    start, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    text = output[output.index(start) : output.index(end) + len(end)]
    return ssl.PEM_cert_to_DER_cert(text)


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
