"""Requests in spellings that servers are known to interpret differently, one spelling at a time."""

from __future__ import annotations

from dataclasses import replace

from harness.clients.kept import Spelled

HOST = b"app.test"

PATHS = r"""
/ // /admin /admin/ /admin/f //admin /admin//f //admin/f ///admin///f /./admin/f /admin/./f
/a/../admin/f /a/b/../../admin/f /a//../admin/f /a/..//admin/f /admin/../b/f /admin/x/../f
/a/%2e%2e/admin/f /a/.%2E/admin/f /%2e/admin/f /%2e%2e/admin/f /admin/%2e%2e/b/f /admin/%2e/f
/.. /../admin/f /a/../../admin/f /a/.. /a/. /admin/.. /admin/. /a/... /a/.../f /a/..f /a/f. /admin./f /admin%2e/f
/%61dmin/f /admi%6E/f /admi%6e/f /%61%64%6d%69%6e/f /adm%69n /%2561dmin/f
/admin%2Ff /admin%2ff /%2Fadmin/f /%2fadmin%2ff /a%2F..%2Fadmin/f /a/..%2fadmin/f /a/%2e%2e%2fadmin/f
/a%2Fb /a%2F%2Fadmin /a%2f /a/%2F /b%2Fadmin%2F..%2Ff /admin%252Ff /a%252fb
/admin%5Cf /admin%5cf /admin\f /\admin/f /a\..\admin\f /a/..%5cadmin/f /a%5Cb \admin
/admin;x=1/f /admin;/f /admin%3Bx/f /admin%3b/f /a/..;/admin/f /a/.;x/f /a/..%3b/admin/f /;/admin/f /;x/admin/f
/a;x/b /a;x/f /b;v=1/f /admin/f;x /a;x%2Fadmin /a;v/f /a;/../admin/f
/admin%00/f /%00/admin /admin/f%00.txt /a%00 /admin%20/f /admin%09/f /admin%0a/f /a%0d%0ab
/%c0%afadmin/f /%c0%ae%c0%ae/admin/f /a/%c0%ae%c0%ae/admin /%e0%80%afadmin /a%c1%9cadmin /a%ff
/%u002fadmin /a/%uff0e%uff0e/admin/f /% /%4 /%zz/f /admin/% /a% /%+1 /a%%2f
/ADMIN/f /Admin/f /admin/f?x=/../.. /a?/../admin /admin? /?/admin /a/f?x#y /a#/../admin
/admin%3Fx /admin%23x /admin/f%3F /a%3f/../admin/f
/privé/f /priv%C3%A9/f /priv%c3%a9/f /prive%CC%81/f /priv%E9/f /@staff/f /%40staff/f /priv%28x%29/f /priv(x)/f
/%7Eu/f /~u/f /a+b/f /a%2Bb/f /a%20b/f /*/f /%2A/f /%2a /[x]/f /"q"/f /a|b /{a} /a^b /a`b /<a>
/http://admin.test/f /https:/admin/f //admin.test/f ///admin.test/f /.well-known/x /index.php /index.php/admin/f
/run.php /run.php/admin /run.php%2Fadmin /a/run.php /a/run.php/../../admin/f /admin/run.php/f
* admin/f ?x http://admin.test/f
""".encode().split()
NO_WORDS = [
    b"",
    b"/\t",
    b"/a\x7fb",
    b"/\xc0\xafadmin/f",
    b"/\xc0\xae\xc0\xae/admin/f",
    b"/priv\xe9/f",
    b"/\xff",
]

HOSTS = r"""
admin.test Admin.Test ADMIN.TEST admin.test. admin.test.. .admin.test %61dmin.test 1.admin.test
admin.test:443 ADMIN.TEST.:443 admin.test:0443 admin.test:8443 admin.test: admin.test:99999 admin.test:x
user@admin.test admin.test@app.test app.test@admin.test user:password@app.test admin.test,app.test app.test,admin.test
admin.test/ app.test/admin admin.test\ admin.test# admin.test;x privé.test xn--priv-esa.test a_b.test b.test app.test:80
private.test PRIVATE.test private.test. x.lab.test X.LAB.test. y.x.lab.test lab.test .lab.test
admin.test:443:443 [::1] [::1]:443 [0:0:0:0:0:0:0:1] 127.0.0.1 127.1
""".encode().split()
HOSTS += [b"", b"admin.test app.test", b"admin\xff.test"]

METHODS = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "PURGE",
    "PROPFIND",
    "M-SEARCH",
    "FOO",
    "TRACE",
]
ODD_METHODS = [
    "get",
    "Get",
    "post",
    "Post",
    "delete",
    "purge",
    "pURGE",
    "head",
    "connect",
    "CONNECT",
]

PRETENDED = """
x-http-method-override: DELETE
x-http-method: PURGE
x-method-override: POST
x-original-url: /admin/f
x-rewrite-url: /admin/f
x-original-uri: /admin/f
x-forwarded-host: admin.test
x-host: admin.test
x-original-host: admin.test
forwarded: host=admin.test
x-forwarded-prefix: /admin
x-forwarded-uri: /admin/f
x-route: 0
x_route: 0
x.route: 0
x_http_method_override: DELETE
x_original_url: /admin/f
x_forwarded_host: admin.test
"""
PRETENDING = [
    (name, value)
    for name, _, value in (line.partition(": ") for line in PRETENDED.split("\n")[1:-1])
]
"""Fields that can make an application interpret a request as another one."""

OF_CONNECTION = ["x-route", "host", "x-forwarded-host", "close, x-route", "keep-alive, host"]
"""Values of `connection`, which only HTTP/1.1 has."""
NAMED_BY_CONNECTION = (("x-forwarded-host", "admin.test"), ("x-route", "0"))

PROTOCOLS = ["websocket", "h2c", "connect-udp", "HTTP/2.0", "websocket, h2c"]


def known() -> list[Spelled]:
    paths = [*PATHS, *NO_WORDS]
    asked = [Spelled(path, host=HOST) for path in paths]
    asked += [
        Spelled(path, host=HOST, absolute=True) for path in paths[::4] if path.startswith(b"/")
    ]
    asked += [Spelled(path, "OPTIONS", HOST) for path in (b"*", b"/*", b"*/admin")]
    asked += [
        Spelled(path, method, HOST)
        for path in (b"/b/f", b"/admin/f")
        for method in METHODS + ODD_METHODS
    ]
    asked += [
        Spelled(b"admin.test:443", "CONNECT", HOST),
        Spelled(b"/admin/f", "CONNECT", b"admin.test:443"),
    ]
    for protocol in PROTOCOLS:
        asked += [
            Spelled(path, host=HOST, protocol=protocol)
            for path in (b"/admin/f", b"/b/f", b"/a/../admin/f")
        ]
    to_open = Spelled(b"/b/f", host=HOST)
    asked += [replace(to_open, host=host) for host in HOSTS]
    asked += [replace(to_open, host=host, absolute=True) for host in HOSTS[::3]]
    asked += [replace(to_open, host_field=host) for host in [*HOSTS[::2], b"App.Test"]]
    asked += [replace(to_open, host=host, host_field=HOST) for host in [*HOSTS[::3], b"App.Test"]]
    asked += [
        replace(to_open, scheme=scheme, absolute=True) for scheme in ("http", "HTTPS", "ftp", "")
    ]
    asked += [replace(to_open, fields=(field,)) for field in PRETENDING]
    asked += [
        replace(to_open, fields=(("connection", value), *NAMED_BY_CONNECTION))
        for value in OF_CONNECTION
    ]
    return asked
