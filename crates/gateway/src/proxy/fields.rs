//! Header fields that the proxy changes.

use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Range;

use bytes::Bytes;
use http::header::{
    ALT_SVC, CONNECTION, CONTENT_TYPE, EXPECT, Entry, FORWARDED, HOST, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version};
use pronghorn_engine::{Peer, Protocol};

use crate::routing::canonical;

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields about the origin of a request that only a trusted proxy and this server set. A client's
/// own values, of these and of all other such fields, were set aside before
/// ([`crate::fields::identity_fields`]); the route may set the others (`request_headers`).
const OF_PROXIES_ALONE: [HeaderName; 3] = [FORWARDED, X_FORWARDED_FOR, EARLY_DATA];

/// Connection-specific fields.
const OF_ONE_CONNECTION: [HeaderName; 7] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    HTTP2_SETTINGS,
    PROXY_AUTHENTICATE,
];

/// Number of field lines added to each request: [`FORWARDED`], four `x-forwarded-*` lines, and
/// [`VIA`].
const ADDED_LINES: usize = 6;

/// Length of the longest element of `forwarded` without a host, and of a port.
const ELEMENT_BYTES: usize = "for=\"[]\";host=\"\";proto=https".len() + 39 + "65535".len();

/// The kinds of changing fields that a message has. Found in one pass, since most messages have
/// few.
#[derive(Clone, Copy, Default)]
struct Present {
    connection: bool,
    of_one_connection: bool,
    te: bool,
    for_this_proxy: bool,
    said_by_proxies: bool,
    alt_svc: bool,
    via: bool,
}

impl Present {
    fn of(headers: &HeaderMap) -> Self {
        let mut present = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "connection" => present.connection = true,
                "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade"
                | "http2-settings" | "proxy-authenticate" => {
                    present.of_one_connection = true;
                }
                "te" => present.te = true,
                "expect" | "proxy-authorization" => present.for_this_proxy = true,
                "forwarded" | "early-data" => present.said_by_proxies = true,
                "alt-svc" => present.alt_svc = true,
                "via" => present.via = true,
                name => present.said_by_proxies |= name.starts_with("x-forwarded-"),
            }
        }
        present
    }
}

/// Converts the fields of a request to those for the upstream.
///
/// `is_trusted` means that the peer is a trusted proxy. `prefix` is the prefix that was stripped
/// from the path. Returns whether the client waits for 100 (Continue).
pub(super) fn to_upstream(
    clients: &Clients,
    headers: &mut HeaderMap,
    peer: &Peer,
    uri: &Uri,
    prefix: Option<&HeaderValue>,
    is_trusted: bool,
) -> bool {
    let present = Present::of(headers);
    // Without the reservation the map would grow to twice its capacity.
    headers.reserve(ADDED_LINES + usize::from(prefix.is_some()) + usize::from(peer.early_data));
    let takes_trailers =
        present.te && headers.get_all(TE).iter().any(|line| has_token(line, "trailers"));
    remove_of_connection(headers, present);
    let expects_continue = present.for_this_proxy && headers.contains_key(EXPECT);
    if present.te || present.for_this_proxy {
        for name in [TE, EXPECT, PROXY_AUTHORIZATION] {
            headers.remove(name);
        }
    }
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if !is_trusted && present.said_by_proxies {
        for name in &OF_PROXIES_ALONE {
            headers.remove(name);
        }
    }
    let own_host = headers.get(HOST).cloned();
    let has_host = own_host.is_some();
    let host = own_host.or_else(|| HeaderValue::try_from(uri.authority()?.as_str()).ok());
    let (scheme, usual_port) = if peer.secure { ("https", 443) } else { ("http", 80) };
    let port = canonical::port(uri).unwrap_or(usual_port);
    let forwarded = clients.forwarded(peer.remote.ip().to_canonical(), host.as_ref(), scheme, port);
    // Most requests have none, and need no search.
    let is_said = present.said_by_proxies;
    if let Some(Forwarded { element, address, port }) = forwarded {
        join(headers, is_said, FORWARDED, element);
        join(headers, is_said, X_FORWARDED_FOR, address);
        keep(headers, is_said, X_FORWARDED_PORT, port);
    }
    keep(headers, is_said, X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if let Some(host) = host {
        keep(headers, is_said, X_FORWARDED_HOST, host.clone());
        if !has_host {
            headers.append(HOST, host);
        }
    }
    if let Some(prefix) = prefix {
        headers.insert(X_FORWARDED_PREFIX, prefix.clone());
    }
    //= RFC 8470 section 5.1
    //# An intermediary that forwards a request prior to the completion of the TLS handshake with its client MUST send it with the
    //# Early-Data header field set to "1"
    if peer.early_data {
        headers.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    let via = match peer.protocol {
        Protocol::Http1 => "1.1 pronghorn",
        Protocol::Http2 => "2.0 pronghorn",
        Protocol::Http3 => "3.0 pronghorn",
    };
    join(headers, present.via, VIA, HeaderValue::from_static(via));
    expects_continue
}

/// Converts the fields of an upstream's response to those for the client. `version` is the
/// upstream's HTTP version.
pub(crate) fn to_client(headers: &mut HeaderMap, version: Version) {
    let present = Present::of(headers);
    remove_of_connection(headers, present);
    // `alt-svc` names the upstream's own ports.
    if present.alt_svc {
        headers.remove(ALT_SVC);
    }
    let via = match version {
        Version::HTTP_2 => "2.0 pronghorn",
        Version::HTTP_3 => "3.0 pronghorn",
        _ => "1.1 pronghorn",
    };
    join(headers, present.via, VIA, HeaderValue::from_static(via));
}

/// Converts the fields of a FastCGI response to those for the client.
pub(super) fn from_application(headers: &mut HeaderMap) {
    headers.remove(ALT_SVC);
    join(headers, true, VIA, HeaderValue::from_static("FastCGI/1.0 pronghorn"));
}

/// Returns whether a body may be buffered for a slow client. Streams must not be buffered: late
/// events are useless, and gRPC senders pace themselves by the reader. Removes the field that
/// controls buffering.
pub(super) fn may_buffer(headers: &mut HeaderMap) -> bool {
    let is_refused = headers
        .remove(X_ACCEL_BUFFERING)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"no"));
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_stream = [&b"text/event-stream"[..], b"application/grpc"].iter().any(|kind| {
        content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
    });
    !is_refused && !is_stream
}

/// Forwards an interim response, without connection-specific fields. 100 (Continue) is not
/// forwarded: the engine sends it when the body is read.
pub(super) fn interim(
    status: StatusCode,
    mut headers: HeaderMap,
    pass_on: impl FnOnce(&HeaderMap),
) {
    if status != StatusCode::CONTINUE {
        let present = Present::of(&headers);
        remove_of_connection(&mut headers, present);
        headers.remove(ALT_SVC);
        pass_on(&headers);
    }
}

//= RFC 9110 section 7.6.1
//# Intermediaries MUST parse a received Connection header field before a message is forwarded and, for each connection-option in
//# this field, remove any header or trailer field(s) from the message with the same name as the connection-option, and then remove
//# the Connection header field itself
fn remove_of_connection(headers: &mut HeaderMap, present: Present) {
    if present.connection && !is_keep_alive(headers) {
        let options = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        // `keep-alive` may also stand next to other options.
        let options = options
            .map(<[u8]>::trim_ascii)
            .filter(|option| !option.eq_ignore_ascii_case(b"keep-alive"));
        let named: Vec<_> =
            options.filter_map(|option| HeaderName::from_bytes(option).ok()).collect();
        // Fields that frame the message or name its host are never connection-specific, even if
        // listed.
        for name in
            named.iter().filter(|name| **name != HOST && **name != http::header::CONTENT_LENGTH)
        {
            headers.remove(name);
        }
    }
    if present.connection && !present.of_one_connection {
        headers.remove(CONNECTION);
    } else if present.of_one_connection {
        for name in &OF_ONE_CONNECTION {
            headers.remove(name);
        }
    }
}

/// Returns whether `connection` is just `keep-alive`, the most common value.
fn is_keep_alive(headers: &HeaderMap) -> bool {
    let repeats_names = headers.len() > headers.keys_len();
    headers.get(CONNECTION).is_some_and(|line| line.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
        && !(repeats_names && headers.get_all(CONNECTION).iter().nth(1).is_some())
}

fn has_token(line: &HeaderValue, token: &str) -> bool {
    line.as_bytes().split(|byte| *byte == b',').any(|one| {
        let name = one.split(|byte| *byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
    })
}

/// Appends to a list field, in one line, since not all servers read several. `may_be_there` is
/// whether the field may exist.
fn join(headers: &mut HeaderMap, may_be_there: bool, name: HeaderName, value: HeaderValue) {
    if !may_be_there {
        headers.append(name, value);
        return;
    }
    match headers.entry(name) {
        Entry::Vacant(place) => {
            place.insert(value);
        }
        Entry::Occupied(mut there) => {
            let mut line = Vec::new();
            for earlier in there.iter() {
                line.extend_from_slice(earlier.as_bytes());
                line.extend_from_slice(b", ");
            }
            line.extend_from_slice(value.as_bytes());
            if let Ok(line) = HeaderValue::try_from(line) {
                there.insert(line);
            }
        }
    }
}

/// Adds a field unless it exists. `may_be_there` is whether it may exist.
fn keep(headers: &mut HeaderMap, may_be_there: bool, name: HeaderName, value: HeaderValue) {
    if may_be_there {
        headers.entry(name).or_insert(value);
    } else {
        headers.append(name, value);
    }
}

/// Number of slots of the cache of forwarding fields.
const SLOTS: usize = 64;
/// Length of the longest host that is cached, in bytes.
const MAX_HOST_BYTES: usize = 255;

/// A cache of the forwarding fields of recent clients. Most clients send several requests in a row,
/// to the same host.
pub(super) struct Clients(RefCell<Box<[Option<Client>; SLOTS]>>);

struct Client {
    address: IpAddr,
    host: Option<HeaderValue>,
    scheme: &'static str,
    port: u16,
    forwarded: Forwarded,
}

/// Values of the forwarding fields of a client, in one allocation.
#[derive(Clone)]
struct Forwarded {
    /// RFC 7239.
    element: HeaderValue,
    /// The address in the element.
    address: HeaderValue,
    port: HeaderValue,
}

impl Default for Clients {
    fn default() -> Self {
        Self(RefCell::new(Box::new([const { None }; SLOTS])))
    }
}

impl Clients {
    fn forwarded(
        &self,
        address: IpAddr,
        host: Option<&HeaderValue>,
        scheme: &'static str,
        port: u16,
    ) -> Option<Forwarded> {
        let slot = &mut self.0.borrow_mut()[slot_of(address)];
        if let Some(known) = slot
            && (known.address, known.port, known.scheme) == (address, port, scheme)
            && known.host.as_ref() == host
        {
            return Some(known.forwarded.clone());
        }
        let forwarded = Forwarded::new(address, host, scheme, port)?;
        if host.is_none_or(|host| host.len() <= MAX_HOST_BYTES) {
            // Copied: the value of the request keeps its whole head allocated.
            let host =
                host.map(|host| HeaderValue::from_bytes(host.as_bytes())).transpose().ok()?;
            *slot = Some(Client { address, host, scheme, port, forwarded: forwarded.clone() });
        }
        Some(forwarded)
    }
}

fn slot_of(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let folded = (bits >> 64) as u64 ^ bits as u64;
    // Fibonacci hashing: its highest bits depend on all of the address.
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SLOTS.ilog2())) as usize
}

impl Forwarded {
    /// Builds the values. An IPv6 address is put in brackets and quotes, a host with a port in
    /// quotes.
    fn new(address: IpAddr, host: Option<&HeaderValue>, scheme: &str, port: u16) -> Option<Self> {
        // A host that was admitted has neither quotes nor backslashes.
        let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"' && *byte != b'\\';
        let host = host.map(HeaderValue::as_bytes).filter(|host| host.iter().all(is_plain));
        let mut text = Vec::with_capacity(ELEMENT_BYTES + host.map_or(0, <[u8]>::len));
        let (before, after) = if address.is_ipv4() { ("for=", "") } else { ("for=\"[", "]\"") };
        text.extend_from_slice(before.as_bytes());
        write_address(&mut text, address);
        let address_end = text.len();
        text.extend_from_slice(after.as_bytes());
        if let Some(host) = host {
            let is_token = host
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
            let (before, after): (&[u8], &[u8]) =
                if is_token { (b";host=", b"") } else { (b";host=\"", b"\"") };
            for part in [before, host, after] {
                text.extend_from_slice(part);
            }
        }
        text.extend_from_slice(b";proto=");
        text.extend_from_slice(scheme.as_bytes());
        let element_end = text.len();
        text.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        let text = Bytes::from(text);
        let value = |part: Range<usize>| HeaderValue::from_maybe_shared(text.slice(part)).ok();
        Some(Self {
            element: value(0..element_end)?,
            address: value(before.len()..address_end)?,
            port: value(element_end..text.len())?,
        })
    }
}

/// Writes an address. The standard library's formatting takes ten times as long.
fn write_address(text: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        return text.extend_from_slice(address.to_string().as_bytes());
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push(b'.');
        }
        text.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(protocol: Protocol, early_data: bool) -> Peer {
        let remote = "[::ffff:192.0.2.7]:4000".parse().expect("an address");
        Peer {
            protocol,
            remote,
            secure: true,
            early_data,
            tls: None,
            server_name: None,
            client_certificate: None,
        }
    }

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn passed(lines: &[(&'static str, &'static str)], is_trusted: bool) -> HeaderMap {
        let mut headers = map(lines);
        let uri = Uri::from_static("https://example.org:8443/x");
        to_upstream(
            &Clients::default(),
            &mut headers,
            &peer(Protocol::Http3, false),
            &uri,
            None,
            is_trusted,
        );
        headers
    }

    #[test]
    fn client_is_named_and_cannot_name_another() {
        let headers = passed(
            &[("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1"), ("early-data", "1")],
            false,
        );
        for (name, value) in [
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "example.org:8443"),
            ("x-forwarded-port", "8443"),
            ("forwarded", "for=192.0.2.7;host=\"example.org:8443\";proto=https"),
            ("via", "3.0 pronghorn"),
            ("host", "example.org:8443"),
        ] {
            assert_eq!(
                headers.get(name).map(HeaderValue::as_bytes),
                Some(value.as_bytes()),
                "{name}"
            );
        }
        assert!(!headers.contains_key("early-data"));
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
    }

    #[test]
    fn fields_that_the_route_sets_are_sent() {
        let set = [
            ("x-real-ip", "192.0.2.8"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "inside.test"),
            ("x-forwarded-port", "80"),
            ("x-forwarded-prefix", "/app"),
        ];
        for is_trusted in [false, true] {
            let headers = passed(&set, is_trusted);
            for (name, value) in set {
                let lines: Vec<_> = headers.get_all(name).iter().collect();
                assert_eq!(lines, [value], "{name}");
            }
        }
    }

    #[test]
    fn stream_is_not_held_nor_what_asks_not_to_be() {
        for (name, value, may) in [
            ("content-type", "text/html", true),
            ("content-type", "text/event-stream; charset=utf-8", false),
            ("content-type", "Text/Event-Stream", false),
            ("content-type", "application/grpc+proto", false),
            ("x-accel-buffering", "no", false),
            ("x-accel-buffering", "No", false),
            ("x-accel-buffering", "yes", true),
        ] {
            let mut headers = map(&[(name, value)]);
            assert_eq!(may_buffer(&mut headers), may, "{name}: {value}");
            assert_eq!(headers.contains_key(name), name == "content-type", "{name}: {value}");
        }
    }

    #[test]
    fn trusted_proxy_is_believed_and_joined() {
        let lines = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "http"),
            ("via", "1.1 edge"),
        ];
        let headers = passed(&lines, true);
        assert_eq!(headers["x-forwarded-for"], "203.0.113.9, 10.0.0.2, 192.0.2.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["via"], "1.1 edge, 3.0 pronghorn");
    }

    #[test]
    fn whom_no_proxy_has_passed_on_is_named_by_this_one_alone() {
        for is_trusted in [false, true] {
            for (lines, via) in [
                (&[][..], "3.0 pronghorn"),
                (&[("via", "1.0 a"), ("via", "1.1 b")], "1.0 a, 1.1 b, 3.0 pronghorn"),
            ] {
                let headers = passed(lines, is_trusted);
                assert_eq!((headers.len(), headers.keys_len()), (7, 7), "{headers:?}");
                assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
                assert_eq!(headers["via"], via);
            }
        }
        let mut headers = map(&[("via", "1.1 a")]);
        to_client(&mut headers, Version::HTTP_11);
        assert_eq!(headers, map(&[("via", "1.1 a, 1.1 pronghorn")]));
    }

    #[test]
    fn proxy_that_says_a_part_is_believed_in_that_alone() {
        let headers = passed(
            &[("x-forwarded-port", "80"), ("x-forwarded-host", "a.example"), ("host", "b.example")],
            true,
        );
        for (name, value) in [
            ("x-forwarded-port", "80"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-proto", "https"),
        ] {
            assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), [value], "{name}");
        }
        assert_eq!(headers.get_all("host").iter().collect::<Vec<_>>(), ["b.example"]);
    }

    #[test]
    fn fields_of_the_connection_stay_behind() {
        let headers = passed(
            &[
                ("connection", "close, X-Secret , host,Keep-Alive, content-length"),
                ("x-secret", "1"),
                ("keep-alive", "timeout=5"),
                ("te", "gzip, trailers;q=0.5"),
                ("expect", "100-continue"),
                ("proxy-authorization", "Basic eDp5"),
                ("http2-settings", "AAMAAABk"),
                ("host", "example.org"),
                ("content-length", "5"),
                ("cookie", "a=b"),
            ],
            false,
        );
        for name in [
            "connection",
            "x-secret",
            "keep-alive",
            "expect",
            "proxy-authorization",
            "http2-settings",
        ] {
            assert!(!headers.contains_key(name), "{name}");
        }
        for (name, value) in [
            ("te", "trailers"),
            ("host", "example.org"),
            ("content-length", "5"),
            ("cookie", "a=b"),
        ] {
            assert_eq!(headers[name], value);
        }
    }

    #[test]
    fn early_data_is_told() {
        let mut headers = HeaderMap::new();
        to_upstream(
            &Clients::default(),
            &mut headers,
            &peer(Protocol::Http2, true),
            &Uri::from_static("https://a/"),
            None,
            false,
        );
        assert_eq!(headers["early-data"], "1");
    }

    #[test]
    fn client_that_asks_again_is_named_as_one_that_does_not() {
        let clients = Clients::default();
        let hosts = [None, Some("a.example"), Some("b.example:8443")]
            .map(|host| host.map(HeaderValue::from_static));
        // More clients than slots.
        let addresses = || {
            (0..200_u8)
                .map(|number| IpAddr::from([10, 0, number, 7]))
                .chain([IpAddr::from([0x2001, 0, 0, 0, 0, 0, 0, 1])])
        };
        for _ in 0..2 {
            for address in addresses() {
                for (host, (scheme, port)) in hosts.iter().flat_map(|host| {
                    [("https", 443), ("https", 8443), ("http", 443)].map(|to| (host, to))
                }) {
                    for _ in 0..2 {
                        let said = clients
                            .forwarded(address, host.as_ref(), scheme, port)
                            .expect("values");
                        let fresh =
                            Forwarded::new(address, host.as_ref(), scheme, port).expect("values");
                        assert_eq!(
                            (said.element, said.address, said.port),
                            (fresh.element, fresh.address, fresh.port)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn addresses_are_written_as_usual() {
        for text in ["0.0.0.0", "192.0.2.7", "255.10.99.100", "2001:db8::1"] {
            let forwarded =
                Forwarded::new(text.parse().expect("an address"), None, "https", u16::MAX);
            let Forwarded { element, address, port } = forwarded.expect("values");
            assert_eq!((address.as_bytes(), port.as_bytes()), (text.as_bytes(), &b"65535"[..]));
            assert!(element.len() + port.len() <= ELEMENT_BYTES);
        }
    }

    #[test]
    fn each_field_that_changes_is_noticed_alone() {
        let hop = [
            "connection",
            "keep-alive",
            "proxy-connection",
            "transfer-encoding",
            "upgrade",
            "http2-settings",
            "proxy-authenticate",
        ];
        for name in hop.into_iter().chain(["te", "expect", "proxy-authorization", "early-data"]) {
            let headers = passed(&[("host", "example.org"), (name, "x")], false);
            assert!(!headers.contains_key(name), "{name}");
        }
        for name in hop.into_iter().chain(["alt-svc"]) {
            let mut headers = map(&[("etag", "x"), (name, "x")]);
            to_client(&mut headers, Version::HTTP_2);
            assert_eq!(headers, map(&[("etag", "x"), ("via", "2.0 pronghorn")]), "{name}");
        }
    }

    #[test]
    fn ipv6_client_is_quoted() {
        let address = "2001:db8::1".parse().expect("an address");
        let forwarded =
            Forwarded::new(address, Some(&HeaderValue::from_static("a.example")), "http", 80);
        let Forwarded { element, address, .. } = forwarded.expect("values");
        assert_eq!(element, "for=\"[2001:db8::1]\";host=a.example;proto=http");
        assert_eq!(address, "2001:db8::1");
    }

    #[test]
    fn what_connection_names_beside_keep_alive_goes_too() {
        for lines in [
            &[("connection", "keep-alive, x-hop")][..],
            &[("connection", "keep-alive"), ("connection", "x-hop")],
        ] {
            let mut headers = map(lines);
            headers.insert("x-hop", HeaderValue::from_static("1"));
            to_client(&mut headers, Version::HTTP_11);
            assert_eq!(headers, map(&[("via", "1.1 pronghorn")]), "{lines:?}");
        }
    }

    #[test]
    fn response_says_nothing_of_the_servers_connection() {
        let mut headers = map(&[
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("alt-svc", "h3=\":8443\""),
            ("transfer-encoding", "chunked"),
            ("etag", "x"),
        ]);
        to_client(&mut headers, Version::HTTP_11);
        assert_eq!(headers, map(&[("etag", "x"), ("via", "1.1 pronghorn")]));
    }
}
