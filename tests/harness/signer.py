"""The files of a `pronghorn signer` and of its clients, and keys in SoftHSM2."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_public_key,
)

from .certificates import pem, sign
from .keyless import Keyless
from .server import pronghorn

MODULES = [
    Path("/usr/lib/softhsm/libsofthsm2.so"),
    Path("/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so"),
]


class Signer:
    """A folder with the files of a signer and its clients."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.keys = {
            "rsa": rsa.generate_private_key(65537, 2048),
            "p256": ec.generate_private_key(ec.SECP256R1()),
            "p384": ec.generate_private_key(ec.SECP384R1()),
        }
        self.authority = ec.generate_private_key(ec.SECP256R1())
        ca = sign("Signers", self.authority, "Signers", self.authority, is_ca=True)
        (folder / "ca.pem").write_bytes(pem(ca))
        for name in ("localhost", "gateway", "other", "stranger"):
            self.issue(name)
        for name, key in self.keys.items():
            self.write_key(f"{name}-key.pem", key)

    def issue(self, name: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = sign(name, key, "Signers", self.authority, is_ca=False)
        (self.folder / f"{name}.pem").write_bytes(pem(certificate))
        self.write_key(f"{name}-key.pem", key)

    def write_key(self, name: str, key) -> None:
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / name).write_bytes(text)

    def fingerprint(self, name: str) -> str:
        certificate = x509.load_pem_x509_certificate((self.folder / f"{name}.pem").read_bytes())
        return certificate.fingerprint(hashes.SHA256()).hex(":")

    def config(self) -> str:
        keys = "\n".join(f'{name} = "{name}-key.pem"' for name in self.keys)
        return f"""listen = ["127.0.0.1:0"]
cert = "localhost.pem"
key = "localhost-key.pem"
client_ca = "ca.pem"

[admin]
listen = "unix:admin.sock"

[keys]
{keys}

[[clients]]
sha256 = "{self.fingerprint("gateway")}"
keys = ["*"]

[[clients]]
sha256 = "{self.fingerprint("other")}"
keys = ["p256"]
"""

    def command(self, config: str, *flags: str) -> list[str | Path]:
        (self.folder / "signer.toml").write_text(config)
        return [pronghorn(), "signer", "-c", self.folder / "signer.toml", *flags]

    def connect(self, port: int, client: str = "gateway") -> Keyless:
        files = (self.folder / f"{client}.pem", self.folder / f"{client}-key.pem")
        return Keyless(port, self.folder / "ca.pem", *files)


class Token:
    """A token of SoftHSM2 with a P-256 key, in a folder."""

    PIN = "1234"

    def __init__(self, folder: Path):
        module = next((path for path in MODULES if path.exists()), None)
        if module is None:
            raise FileNotFoundError("SoftHSM2 is missing: run scripts/setup")
        self.module = module
        self.folder = folder
        (folder / "tokens").mkdir()
        (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder}/tokens\n")
        (folder / "pin").write_text(f"{self.PIN}\n")
        self.env = {"SOFTHSM2_CONF": str(folder / "softhsm2.conf")}
        init = ("--init-token", "--free", "--label", "T", "--pin", self.PIN, "--so-pin", "5678")
        self._run("softhsm2-util", *init)
        self._tool("--keypairgen", "--key-type", "EC:prime256v1", "--label", "site", "--id", "07")
        der = folder / "public.der"
        self._tool("--read-object", "--type", "pubkey", "--id", "07", "--output-file", der)
        self.public = load_der_public_key(der.read_bytes())

    def public_key(self):
        return self.public

    def uri(self, *, token: str = "T", module: str | Path | None = None, pin: str = "pin") -> str:
        query = f"module-path={module or self.module}&pin-source={pin}"
        return f"pkcs11:token={token};object=site?{query}"

    def import_key(self, key, label: str) -> None:
        """Puts a private key into the token."""
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / "import.pem").write_bytes(text)
        self._run(
            *("softhsm2-util", "--import", self.folder / "import.pem", "--token", "T"),
            *("--label", label, "--id", "08", "--pin", self.PIN),
        )

    def _tool(self, *arguments: str | Path) -> None:
        tool = ("pkcs11-tool", "--module", self.module, "--token-label", "T", "--login")
        self._run(*tool, "--pin", self.PIN, *arguments)

    def _run(self, *command: str | Path) -> None:
        env = {**self.env, "PATH": "/usr/bin:/bin"}
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)
