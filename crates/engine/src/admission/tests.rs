use super::*;

fn head(
    protocol: Protocol,
    method: &str,
    target: &str,
    lines: &[(&'static str, &'static str)],
) -> Head<'static> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_static(value));
    }
    let version = match protocol {
        Protocol::Http1 => Version::HTTP_11,
        Protocol::Http2 => Version::HTTP_2,
        Protocol::Http3 => Version::HTTP_3,
    };
    Head {
        protocol,
        version,
        secure: true,
        method: method.parse().unwrap(),
        uri: target.parse().unwrap(),
        headers,
        upgrade: None,
        latest: None,
    }
}

fn h1(
    method: &str,
    target: &str,
    lines: &[(&'static str, &'static str)],
) -> Result<Admitted, Refusal> {
    head(Protocol::Http1, method, target, lines).admit()
}

fn h2(lines: &[(&'static str, &'static str)]) -> Result<Admitted, Refusal> {
    head(Protocol::Http2, "POST", "https://a.example/", lines).admit()
}

#[test]
fn host_and_authority_are_always_there_and_agree() {
    for (method, target, lines, uri) in [
        ("GET", "/p?q", &[("host", "a.example:8443")][..], "https://a.example:8443/p?q"),
        ("GET", "/", &[("host", "[::1]:443")], "https://[::1]:443/"),
        ("GET", "http://a.example/p", &[("host", "A.example")], "http://a.example/p"),
        ("OPTIONS", "*", &[("host", "a.example")], "https://a.example*"),
        ("CONNECT", "a.example:443", &[("host", "a.example:443")], "a.example:443"),
    ] {
        let admitted = h1(method, target, lines)
            .unwrap_or_else(|refusal| panic!("{target}: {}", refusal.reason));
        assert_eq!(admitted.uri.to_string(), uri);
        let host = admitted.headers.get(HOST).unwrap().to_str().unwrap();
        assert_eq!(host, admitted.uri.authority().unwrap().as_str(), "{target}");
    }
}

#[test]
fn target_that_is_not_ascii_is_refused_over_http2_and_3() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        for target in ["https://a.example/priv\u{e9}/", "https://a.example/?\u{e9}"] {
            let refusal = head(protocol, "GET", target, &[]).admit().unwrap_err();
            assert_eq!(refusal.reason, "non-ASCII character in the target", "{target}");
        }
    }
}

#[test]
fn host_is_taken_from_the_target_where_no_line_has_to_say_it() {
    for (protocol, version) in [
        (Protocol::Http2, Version::HTTP_2),
        (Protocol::Http3, Version::HTTP_3),
        (Protocol::Http1, Version::HTTP_10),
    ] {
        let head = Head { version, ..head(protocol, "GET", "https://a.example/", &[]) };
        assert_eq!(head.admit().unwrap().headers[HOST], "a.example");
    }
}

#[test]
fn host_that_is_missing_doubled_different_or_invalid_is_refused() {
    for (method, target, lines) in [
        ("GET", "/", &[][..]),
        ("GET", "http://a.example/", &[]),
        ("CONNECT", "a.example:443", &[]),
        ("GET", "/", &[("host", "a.example"), ("host", "a.example")]),
        ("GET", "http://a.example/", &[("host", "b.example")]),
        ("GET", "http://a.example/", &[("host", "a.example:80")]),
        ("GET", "http://u@a.example/", &[("host", "u@a.example")]),
        ("GET", "/", &[("host", "")]),
        ("GET", "/", &[("host", ":80")]),
        ("GET", "/", &[("host", "a.example:")]),
        ("GET", "/", &[("host", "a.example:99999")]),
        ("GET", "/", &[("host", "a.example:+80")]),
        ("GET", "/", &[("host", "a.example/x")]),
        ("GET", "/", &[("host", "a b")]),
        ("GET", "/", &[("host", "a.example, b.example")]),
        ("GET", "/", &[("host", "a.example,b.example")]),
        ("GET", "/", &[("host", "u@a.example")]),
        ("GET", "/", &[("host", "[::1")]),
        ("GET", "/", &[("host", "[a.example]")]),
        ("GET", "/", &[("host", "a.example:80:90")]),
    ] {
        for latest in [None, a_example().named()] {
            let head = Head { latest, ..head(Protocol::Http1, method, target, lines) };
            let refusal = head.admit().expect_err(target);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{target} {lines:?}");
        }
    }
}

/// Returns what a connection remembers after a request to `a.example`.
fn a_example() -> AuthorityCache {
    let mut latest = AuthorityCache::default();
    let earlier = h1("GET", "/", &[("host", "a.example")]).unwrap();
    latest.note(&earlier.uri, &earlier.headers);
    assert!(latest.get(b"a.example").is_some());
    latest
}

#[test]
fn what_an_earlier_request_named_changes_no_other() {
    let latest = a_example();
    for (protocol, target, lines) in [
        (Protocol::Http1, "/", &[("host", "a.example")][..]),
        (Protocol::Http1, "/", &[("host", "A.example")]),
        (Protocol::Http1, "/", &[("host", "b.example")]),
        (Protocol::Http1, "http://a.example/", &[("host", "a.example")]),
        (Protocol::Http2, "https://a.example/", &[]),
        (Protocol::Http2, "https://A.example/", &[]),
        (Protocol::Http2, "https://a.example/", &[("host", "a.example")]),
        (Protocol::Http2, "https://a.example:443/", &[]),
    ] {
        let admit =
            |latest| Head { latest, ..head(protocol, "GET", target, lines) }.admit().unwrap();
        assert_eq!(
            format!("{:?}", admit(latest.named())),
            format!("{:?}", admit(None)),
            "{target} {lines:?}"
        );
    }
}

#[test]
fn target_has_the_form_of_its_method() {
    let host = &[("host", "a.example")];
    for (method, target) in [
        ("GET", "*"),
        ("POST", "a.example:443"),
        ("CONNECT", "/"),
        ("CONNECT", "a.example"),
        ("GET", "ftp://a.example/"),
    ] {
        assert!(h1(method, target, host).is_err(), "{method} {target}");
    }
}

#[test]
fn content_length_is_one_number() {
    for lines in [
        &[("content-length", "5"), ("content-length", "6")][..],
        &[("content-length", "")],
        &[("content-length", "+5")],
        &[("content-length", "-5")],
        &[("content-length", "5, 5")],
        &[("content-length", "0x5")],
        &[("content-length", "18446744073709551621")],
    ] {
        assert!(h2(lines).is_err(), "{lines:?}");
    }
    let admitted = h2(&[("content-length", "5"), ("content-length", "5")]).unwrap();
    assert_eq!(admitted.headers.get_all(CONTENT_LENGTH).iter().count(), 1);
    let connect = head(Protocol::Http2, "CONNECT", "a.example:443", &[("content-length", "5")]);
    assert!(connect.admit().is_err());
}

#[test]
fn value_with_white_space_around_it_is_refused() {
    for value in [" a", "a ", "\ta", "a\t", " "] {
        assert!(h2(&[("x-a", value)]).is_err(), "{value:?}");
    }
    assert!(h2(&[("x-a", "a b\tc"), ("x-b", "")]).is_ok());
    assert!(h2(&[("transfer-encoding", "chunked")]).is_err());
}

#[test]
fn expectation_other_than_continue_fails() {
    assert!(h2(&[("expect", "100-Continue")]).unwrap().expects_continue);
    assert!(!h2(&[]).unwrap().expects_continue);
    for lines in [
        &[("expect", "200-ok")][..],
        &[("expect", "")],
        &[("expect", "100-continue"), ("expect", "100-continue")],
    ] {
        assert_eq!(h2(lines).unwrap_err().status, StatusCode::EXPECTATION_FAILED, "{lines:?}");
    }
    let mut old =
        head(Protocol::Http1, "POST", "/", &[("host", "a.example"), ("expect", "100-continue")]);
    old.version = Version::HTTP_10;
    assert!(!old.admit().unwrap().expects_continue);
}

//= RFC 9114 section 4.2.1
//# If a decompressed field section contains multiple cookie field lines, these MUST be concatenated into a single byte string
//# using the two-byte delimiter of "; " (ASCII 0x3b, 0x20) before being passed into a context other than HTTP/2 or HTTP/3,
//# such as an HTTP/1.1 connection, or a generic HTTP server application.
#[test]
fn cookie_crumbs_become_one_line() {
    let crumbs = &[("cookie", "a=1"), ("x-a", "b"), ("cookie", "b=2; c=3"), ("cookie", "d=4")];
    let admitted = h2(crumbs).unwrap();
    let cookies: Vec<_> = admitted.headers.get_all(COOKIE).iter().collect();
    assert_eq!(cookies, ["a=1; b=2; c=3; d=4"]);
}

fn extended(
    protocol: Protocol,
    method: &str,
    target: &str,
    lines: &[(&'static str, &'static str)],
) -> Result<Admitted, Refusal> {
    Head { upgrade: Some(Upgrade::new("websocket")), ..head(protocol, method, target, lines) }
        .admit()
}

#[test]
fn extended_connect_has_a_scheme_an_authority_and_a_path() {
    for protocol in [Protocol::Http2, Protocol::Http3] {
        let admitted = extended(protocol, "CONNECT", "https://a.example/chat?q", &[]).unwrap();
        assert_eq!(admitted.uri, "https://a.example/chat?q");
        assert_eq!(admitted.headers[HOST], "a.example");
        assert_eq!(admitted.upgrade, Some(Upgrade::new("websocket")));
        for (method, target, lines) in [
            ("CONNECT", "a.example:443", &[][..]),
            ("CONNECT", "/chat", &[]),
            ("CONNECT", "ftp://a.example/chat", &[]),
            ("CONNECT", "https://a.example/chat", &[("content-length", "0")]),
            ("CONNECT", "https://a.example/chat", &[("host", "b.example")]),
            ("GET", "https://a.example/chat", &[]),
        ] {
            assert!(
                extended(protocol, method, target, lines).is_err(),
                "{method} {target} {lines:?}"
            );
        }
    }
    // Without `:protocol` it is a tunnel to a host and has no path.
    assert!(head(Protocol::Http2, "CONNECT", "https://a.example:443/chat", &[]).admit().is_err());
}

#[test]
fn protocol_that_is_not_one_is_not_implemented() {
    for protocol in ["a b", "websocket, h2c", ""] {
        let mut head = head(Protocol::Http2, "CONNECT", "https://a.example/chat", &[]);
        head.upgrade = Some(Upgrade::new(protocol));
        assert_eq!(head.admit().unwrap_err().status, StatusCode::NOT_IMPLEMENTED, "{protocol:?}");
    }
}

#[test]
fn upgrade_over_http1_is_a_get_without_content() {
    let asks = [("host", "a.example"), ("connection", "upgrade"), ("upgrade", "websocket")];
    let with = |line| h1("GET", "/chat", &[&asks[..], &[line]].concat()).unwrap().upgrade;
    assert_eq!(h1("GET", "/chat", &asks).unwrap().upgrade, Some(Upgrade::new("websocket")));
    assert_eq!(with(("content-length", "0")), Some(Upgrade::new("websocket")));
    assert_eq!(with(("content-length", "1")), None);
    assert_eq!(with(("transfer-encoding", "chunked")), None);
    assert_eq!(h1("POST", "/chat", &asks).unwrap().upgrade, None);
    // Over the other protocols the fields have no meaning.
    assert_eq!(h2(&asks).unwrap().upgrade, None);
}
