"""Forged header fields: a client that poses as another, or asks for another target than the gateway
has checked.
"""

from __future__ import annotations

import base64
import datetime
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from harness.certificates import Identity, common_name, pem, sign
from harness.clients import aioquic_h3, curl
from harness.clients.h2_frames import H2Client
from harness.clients.raw_h1 import RawH1
from harness.fastcgi import HEAD, application, end, output, sent
from harness.gateway import SITE, seen, upstream
from harness.server import pronghorn

FORWARDING = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-forwarded-method",
    "x-forwarded-anything",
    "x-real-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "fastly-client-ip",
    "x-original-forwarded-for",
    "x-envoy-external-address",
    "x-original-host",
]
ASSERTED = [
    "client-cert",
    "client-cert-chain",
    "x-client-cert",
    "x-client-cert-subject",
    "x-client-cert-fingerprint",
    "x-client-cert-verified",
    "x-forwarded-client-cert",
    "x-forwarded-tls-client-cert",
    "x-ssl-client-cert",
    "x-ssl-client-s-dn",
    "ssl-client-verify",
    "x-arr-clientcert",
    "x-amzn-mtls-clientcert",
    "remote-user",
    "x-remote-user",
    "x-forwarded-user",
    "x-auth-request-email",
    "x-authenticated-user",
]
TARGETS = [
    "x-original-url",
    "x-original-uri",
    "x-original-method",
    "x-rewrite-url",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-sendfile-type",
    "x-accel-mapping",
    "x-middleware-subrequest",
]
FORGED = "evil"


def forged(names) -> list[tuple[str, str]]:
    """Returns the fields, and spellings that applications do not tell apart from them."""
    spellings = {
        spelling
        for name in names
        for spelling in (name, name.replace("-", "_"), name.replace("-", "_", 1))
    }
    dotted = {name.replace("-", ".") for name in names}
    return [(name, FORGED) for name in sorted(spellings | dotted)]


def believed(headers) -> list[str]:
    """Returns the fields that reached the upstream with the client's value."""
    return [
        name
        for name, value in headers.items()
        if FORGED in value and name not in ("accept", "x-plain")
    ]


def test_upstream_gets_no_forged_proxy_fields(start, gateway, up, protocol_fetcher):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    fields = [
        *forged(FORWARDING + ASSERTED + TARGETS),
        ("proxy", FORGED),
        ("user_id", FORGED),
        ("x-plain", FORGED),
    ]
    asked = seen(protocol_fetcher.fetch(server.origin + "/", headers=fields))
    assert believed(asked["headers"]) == []
    assert asked["headers"]["x-plain"] == FORGED
    assert asked["headers"]["x-forwarded-for"] == "127.0.0.1"


def test_application_gets_no_forged_proxy_fields(start, gateway, protocol_fetcher):
    asked = []
    with application(sent(output(HEAD + b"x") + end()), asked) as address:
        gateway.write(SITE + f'[[sites.routes]]\nproxy = "{address}"\n')
        server = start(gateway.command())
        fields = [
            *forged(FORWARDING + ASSERTED + TARGETS),
            ("proxy", FORGED),
            ("user_id", FORGED),
            ("x-plain", FORGED),
        ]
        assert protocol_fetcher.fetch(server.origin + "/", headers=fields).status == 200
    told = [name for name, value in asked[0].parameters if FORGED in value]
    assert told == ["HTTP_X_PLAIN"]
    assert asked[0].parameter("HTTP_X_FORWARDED_FOR") == "127.0.0.1"


@pytest.mark.parametrize(
    "trusted", ["", 'trusted_proxies = ["127.0.0.0/8"]'], ids=["stranger", "trusted"]
)
def test_auth_server_gets_proxy_fields_from_the_gateway_only(
    start, gateway, up, protocol_fetcher, trusted
):
    told = []
    with upstream("auth") as auth:

        def verify(handler, _):
            told.append({name.lower(): value for name, value in handler.headers.items()})
            handler.reply(200, b"", [("connection", "close")])

        auth.routes["/"] = verify
        layer = f'{{ name = "forward-auth", address = "{auth.address}" }}'
        gateway.write(
            SITE + f'[[sites.routes]]\nproxy = "{up.address}"\nlayers = [{layer}]\n', server=trusted
        )
        server = start(gateway.command())
        fields = [
            *forged(FORWARDING + ASSERTED + TARGETS),
            ("proxy", FORGED),
            ("user_id", FORGED),
            ("x-plain", FORGED),
        ]
        assert protocol_fetcher.fetch(server.origin + "/", headers=fields).status == 200
    assert believed(told[0]) == []
    assert told[0]["x-plain"] == FORGED
    assert told[0]["x-forwarded-method"] == "GET"


def test_client_address_is_taken_from_a_trusted_proxy(start, gateway, up, protocol_fetcher):
    kept = 'keep_fields = ["remote-user", "user_id", "x-http-method-override"]'
    gateway.write(
        SITE + f'[[sites.routes]]\nmatch = "/kept"\nproxy = "{up.address}"\n{kept}\n'
        f'[[sites.routes]]\nproxy = "{up.address}"\n',
        server='trusted_proxies = ["127.0.0.0/8"]',
    )
    server = start(gateway.command())
    fields = [(name, FORGED) for name in FORWARDING + ASSERTED + TARGETS] + [("user_id", FORGED)]
    others = seen(protocol_fetcher.fetch(server.origin + "/", headers=fields))["headers"]
    assert not set(ASSERTED + TARGETS + ["user_id"]) & set(others)
    assert set(FORWARDING) <= set(others)
    keeps = seen(protocol_fetcher.fetch(server.origin + "/kept", headers=fields))["headers"]
    assert {name for name in ASSERTED + TARGETS if name in keeps} == {
        "remote-user",
        "x-http-method-override",
    }
    assert keeps["user_id"] == FORGED


FAMILIES = (
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "forwarded",
)
USUAL = [
    ("x-forwarded-for", "203.0.113.7"),
    ("x-forwarded-proto", "{proto}"),
    ("x-forwarded-host", "shop.example"),
]
TRUTHS = {
    "Forwarded": [("forwarded", "for=203.0.113.7;proto={proto};host=shop.example")],
    "X-Forwarded": USUAL,
    "both": [("forwarded", "for=6.6.6.6;proto=gopher;host=evil.example"), *USUAL],
}


@pytest.mark.parametrize(("proto", "port"), [("https", "443"), ("http", "80")])
@pytest.mark.parametrize("fields", TRUTHS.values(), ids=TRUTHS.keys())
def test_conflicting_fields_of_a_trusted_proxy_are_resolved_to_one_value(
    start, gateway, up, protocol_fetcher, fields, proto, port
):
    asked, told = [], []

    def verify(handler, _) -> None:
        told.append({name.lower(): value for name, value in handler.headers.items()})
        handler.reply(200, b"", [("connection", "close")])

    with application(sent(output(HEAD + b"x") + end()), asked) as address, upstream("auth") as auth:
        auth.routes["/"] = verify
        layer = f'layers = [{{ name = "forward-auth", address = "{auth.address}" }}]'
        (gateway.folder / "secret").write_text("0123456789abcdef\n")
        sticky = f'{{ servers = ["{up.address}"], sticky = {{ cookie = "at", secret = "${{file:secret}}" }} }}'
        php = f'[[sites.routes]]\nmatch = "/php"\nproxy = "{address}"\n'
        gateway.write(
            SITE + php + f"[[sites.routes]]\nproxy = {sticky}\n{layer}\n",
            server='trusted_proxies = ["127.0.0.0/8"]',
        )
        server = start(gateway.command())
        said = [(name, value.replace("{proto}", proto)) for name, value in fields]
        assert protocol_fetcher.fetch(server.origin + "/php", headers=said).status == 200
        passed = protocol_fetcher.fetch(server.origin + "/", headers=said)
    php = asked[0].parameter
    assert (php("REMOTE_ADDR"), php("REQUEST_SCHEME"), php("SERVER_PORT")) == (
        "203.0.113.7",
        proto,
        port,
    )
    assert php("HTTPS") == ("on" if proto == "https" else None)
    headers = seen(passed)["headers"]
    for forwarded_for, forwarded_proto, host, forwarded_port, forwarded in [
        tuple(headers[name] for name in FAMILIES),
        tuple(php(f"HTTP_{name.upper().replace('-', '_')}") for name in FAMILIES),
    ]:
        assert forwarded_for == "203.0.113.7, 127.0.0.1"
        assert (forwarded_proto, host, forwarded_port) == (proto, "shop.example", port)
        first, own = forwarded.split(", ")
        assert sorted(first.split(";")) == [
            "for=203.0.113.7",
            "host=shop.example",
            f"proto={proto}",
        ]
        assert own.startswith("for=127.0.0.1;")
    assert (told[0]["x-forwarded-for"], told[0]["x-forwarded-proto"]) == ("203.0.113.7", proto)
    assert ("; Secure" in passed.header("set-cookie")) == (proto == "https")


def test_keep_fields_keeps_named_fields_but_no_user_names(start, gateway, up, protocol_fetcher):
    gateway.write(
        SITE
        + f'[[sites.routes]]\nproxy = "{up.address}"\nkeep_fields = ["user_id", "x-original-url"]\n'
        'request_headers = { remove = ["x-internal"], set = { x-tenant = "one" } }\n'
    )
    server = start(gateway.command())
    names = [
        "user_id",
        "x-original-url",
        "x-internal",
        "x_internal",
        "x-tenant",
        "x_tenant",
        "x.tenant",
        "other_id",
    ]
    headers = seen(
        protocol_fetcher.fetch(server.origin + "/", headers=[(name, FORGED) for name in names])
    )["headers"]
    assert {name: headers.get(name) for name in names} == {
        "user_id": FORGED,
        "x-original-url": FORGED,
        "x-internal": None,
        "x_internal": None,
        "x-tenant": "one",
        "x_tenant": None,
        "x.tenant": None,
        "other_id": None,
    }


@pytest.mark.parametrize(
    ("route", "told"),
    [
        ('keep_fields = ["x_real_ip"]', "x_real_ip is never accepted"),
        ('keep_fields = ["proxy"]', "proxy is never accepted"),
        ('keep_fields = ["x-forwarded-for"]', "trusted_proxies"),
        ('keep_fields = ["remote-user"]', "trusted_proxies"),
        ('keep_fields = ["accept"]', "accept is always kept"),
        (
            'keep_fields = ["x_own"]\nrequest_headers = { remove = ["x-own"] }',
            "`request_headers` removes or sets",
        ),
        ('upgrades = { protocols = ["h2c"] }', "bypass all routes"),
        ('upgrades = { protocols = ["a b"] }', "invalid protocol name"),
    ],
)
def test_check_rejects_fields_that_cannot_be_kept(gateway, route, told):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "http://127.0.0.1:9"\n{route}\n')
    checked = subprocess.run(
        [pronghorn(), "check", gateway.file], capture_output=True, text=True, check=False
    )
    assert checked.returncode != 0
    assert told in checked.stdout + checked.stderr


def test_client_cannot_forge_certificate_fields(
    start, gateway, up, protocol_fetcher, identity, tmp_path
):
    for mode in ("required", "optional", None):
        client = certificate(tmp_path / str(mode), "kea")
        auth = f', client = {{ ca = "{client.ca}", mode = "{mode}" }} }}'
        tls = gateway.tls if mode is None else gateway.tls.replace(" }", auth)
        gateway.write(
            f'[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{tls}\n[[sites.routes]]\nproxy = "{up.address}"\n'
        )
        server = start(gateway.command())
        for shown in [client, None] if mode == "optional" else [client] if mode else [None]:
            headers = ask(server, identity.ca, protocol_fetcher.protocol, shown, forged(ASSERTED))
            assert believed(headers) == []
            own = {"client-cert", "x-client-cert-subject", "x-client-cert-fingerprint"}
            assert {name for name in headers if "cert" in name} == (own if shown else set())


def ask(server, ca, protocol, client, fields) -> dict[str, str]:
    with curl.session(ca) as session:
        if client is not None:
            session.cert = (str(client.cert), str(client.key))
        answer = curl.ask(session, protocol, server.origin + "/", headers=fields)
    assert answer.status == 200
    return seen(answer)["headers"]


def certificate(folder, name: str, more=()) -> Identity:
    """Returns a client's certificate with this name, from an authority of its own."""
    folder.mkdir(parents=True)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca = sign("Clients", ca_key, "Clients", ca_key, is_ca=True)
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([*more, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(common_name("Clients"))
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.DNSName("client")]), critical=False
    )
    leaf = builder.sign(ca_key, hashes.SHA256())
    identity = Identity(folder / "ca.pem", folder / "cert.pem", folder / "key.pem", "")
    identity.ca.write_bytes(pem(ca))
    identity.cert.write_bytes(pem(leaf))
    identity.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return identity


@pytest.mark.parametrize("name", ["bob, OU=admins, CN=root", ' #"<;>+\\ ', "Zoë\r\nx: y"])
def test_certificate_subject_is_escaped(
    start, gateway, up, protocol_fetcher, identity, tmp_path, name
):
    more = [
        x509.NameAttribute(NameOID.COUNTRY_NAME, "NZ"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "A, Inc."),
    ]
    client = certificate(tmp_path / "client", name, more)
    tls = gateway.tls.replace(" }", f', client = {{ ca = "{client.ca}" }} }}')
    gateway.write(
        f'[[sites]]\nhosts = ["localhost", "127.0.0.1"]\n{tls}\n[[sites.routes]]\nproxy = "{up.address}"\n'
    )
    server = start(gateway.command())
    subject = ask(server, identity.ca, protocol_fetcher.protocol, client, [])[
        "x-client-cert-subject"
    ]
    assert (
        x509.Name.from_rfc4514_string(subject)
        == x509.load_pem_x509_certificate(client.cert.read_bytes()).subject
    )
    assert "CN=root" not in subject
    assert subject.endswith(r",O=A\, Inc.,C=NZ")


def test_trace_is_rejected_by_the_gateway(start, gateway, up, protocol_fetcher):
    layered = (
        f'[[sites.routes]]\nmatch = "/layered"\nproxy = "{up.address}"\nlayers = ["compress"]\n'
    )
    gateway.write(SITE + layered + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    for path in ("/", "/layered"):
        answer = protocol_fetcher.fetch(server.origin + path, method="TRACE")
        assert (answer.status, "TRACE" in answer.header("allow")) == (405, False)
    assert up.requests == []


def test_two_authorization_fields_are_rejected(start, gateway, up, ca, identity, protocol_fetcher):
    gateway.write(SITE + f'[[sites.routes]]\nproxy = "{up.address}"\n')
    server = start(gateway.command())
    lines = [
        ("authorization", "Basic " + base64.b64encode(pair).decode())
        for pair in (b"deer:antler", b"elk:horn")
    ]
    if protocol_fetcher.protocol == "HTTP/1.1":
        with RawH1(server.origin, ca) as raw:
            answer = raw.fetch("/", headers=lines)
    elif protocol_fetcher.protocol == "HTTP/2":
        with H2Client(server.origin, ca) as client:
            answer = client.fetch("/", headers=lines)
    else:
        answer = aioquic_h3.fetch(
            server.origin + "/", ca=ca, method="GET", headers=lines, body=None
        )
    assert answer.status == 400
    assert up.requests == []
    assert protocol_fetcher.fetch(server.origin + "/", headers=lines[:1]).status == 200
