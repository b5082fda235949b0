//! Formats of access log lines.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::{BodyEnd, Peer, Protocol, Request};
use serde::Serialize;
use time::OffsetDateTime;

use super::note::Note;
use crate::config::LogFormat as Format;

/// The logged properties of a request.
pub(super) struct RequestRecord {
    method: Method,
    uri: Uri,
    peer: Peer,
    user_agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    /// Subject of the client certificate, and its SHA-256.
    pub(super) client: Option<[HeaderValue; 2]>,
    pub(super) upstream: Option<Note>,
}

/// The result of a request.
pub(super) struct ResponseRecord {
    /// Status of the response; `None` without a response.
    pub(super) status: Option<StatusCode>,
    pub(super) end: BodyEnd,
    pub(super) took: Duration,
}

#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    client: String,
    port: u16,
    protocol: String,
    tls: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_name: Option<&'a str>,
    early_data: bool,
    host: &'a str,
    method: &'a str,
    target: &'a str,
    status: Option<u16>,
    bytes: u64,
    milliseconds: f64,
    aborted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream_error: Option<String>,
}

impl RequestRecord {
    pub(super) fn new(request: &Request, format: Format) -> Self {
        let field = |headers: &HeaderMap, name| {
            if format.has_fields() { headers.get(name).cloned() } else { None }
        };
        Self {
            method: request.method.clone(),
            uri: request.uri.clone(),
            peer: request.peer.clone(),
            user_agent: field(&request.headers, USER_AGENT),
            referer: field(&request.headers, REFERER),
            client: None,
            upstream: None,
        }
    }

    fn target(&self) -> &str {
        self.uri.path_and_query().map_or("-", |target| target.as_str())
    }

    /// Returns the line, including the line end.
    pub(super) fn line(&self, ended: &ResponseRecord, format: Format) -> String {
        match format {
            Format::Text => self.text(ended),
            Format::Json => self.json(ended),
            Format::Common => self.common(ended, SystemTime::now().into()) + "\n",
            Format::Combined => {
                let mut line = self.common(ended, SystemTime::now().into());
                for field in [&self.referer, &self.user_agent] {
                    line += " \"";
                    escape(&mut line, field.as_ref().map_or(b"-", HeaderValue::as_bytes));
                    line.push('"');
                }
                line + "\n"
            }
        }
    }

    fn text(&self, ResponseRecord { status, end, took }: &ResponseRecord) -> String {
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        let Peer { remote, protocol, .. } = &self.peer;
        let (method, bytes, target) = (&self.method, end.bytes, self.target());
        let status = status.as_ref().map_or("-", StatusCode::as_str);
        let milliseconds = took.as_secs_f64() * 1e3;
        let aborted = if end.complete { "" } else { " aborted" };
        // The host comes after the original columns, for tools that read columns by number.
        let host = self.uri.host().filter(|host| !host.is_empty()).unwrap_or("-");
        format!(
            "{time} {remote} {protocol} {method} {target} {status} {bytes} {milliseconds:.3}ms \
                {host}{aborted}\n"
        )
    }

    fn json(&self, ResponseRecord { status, end, took }: &ResponseRecord) -> String {
        let (upstream, upstream_error) = self.upstream.as_ref().map(Note::take).unwrap_or_default();
        let lossy = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let line = JsonLine {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            client: self.peer.remote.ip().to_string(),
            port: self.peer.remote.port(),
            protocol: self.peer.protocol.to_string(),
            tls: self.peer.secure,
            server_name: self.peer.server_name.as_deref(),
            early_data: self.peer.early_data,
            host: self.uri.host().unwrap_or_default(),
            method: self.method.as_str(),
            target: self.target(),
            status: status.map(|status| status.as_u16()),
            bytes: end.bytes,
            // Whole microseconds.
            milliseconds: took.as_micros() as f64 / 1e3,
            aborted: !end.complete,
            user_agent: self.user_agent.as_ref().map(lossy),
            referer: self.referer.as_ref().map(lossy),
            client_subject: self.client.as_ref().map(|[subject, _]| lossy(subject)),
            client_fingerprint: self.client.as_ref().map(|[_, fingerprint]| lossy(fingerprint)),
            upstream,
            upstream_error,
        };
        serde_json::to_string(&line).expect("invariant: text and numbers have a form in JSON")
            + "\n"
    }

    fn common(
        &self,
        ResponseRecord { status, end, .. }: &ResponseRecord,
        now: OffsetDateTime,
    ) -> String {
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = MONTHS[usize::from(u8::from(now.month())) - 1];
        let (day, year) = (now.day(), now.year());
        let (hour, minute, second) = now.to_hms();
        let client = self.peer.remote.ip();
        let mut line = format!(
            "{client} - - [{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000] \""
        );
        escape(&mut line, self.method.as_str().as_bytes());
        line.push(' ');
        escape(&mut line, self.target().as_bytes());
        let status = status.as_ref().map_or("-", StatusCode::as_str);
        // As other web servers write it.
        let protocol = match self.peer.protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2.0",
            Protocol::Http3 => "HTTP/3.0",
        };
        // Writing to a string cannot fail.
        let _ = write!(line, " {protocol}\" {status} {}", end.bytes);
        line
    }
}

/// Escapes as web servers do: quotes, backslashes and bytes other than visible ASCII become
/// hexadecimal, so that a line stays one line.
fn escape(line: &mut String, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' | ..=0x1f | 0x7f.. => {
                // Writing to a string cannot fail.
                let _ = write!(line, "\\x{byte:02X}");
            }
            _ => line.push(char::from(*byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(user_agent: &[u8]) -> RequestRecord {
        let peer = Peer {
            protocol: Protocol::Http2,
            remote: "192.0.2.1:5000".parse().unwrap(),
            secure: true,
            early_data: true,
            tls: None,
            server_name: Some("example.org".into()),
            client_certificate: None,
        };
        let uri = "https://example.org/a?b".parse().unwrap();
        RequestRecord {
            method: Method::GET,
            uri,
            peer,
            user_agent: HeaderValue::from_bytes(user_agent).ok(),
            referer: None,
            client: None,
            upstream: None,
        }
    }

    fn ended() -> ResponseRecord {
        ResponseRecord {
            status: Some(StatusCode::OK),
            end: BodyEnd { bytes: 12, complete: true },
            took: Duration::from_micros(1500),
        }
    }

    #[test]
    fn common_line_is_as_tools_read_it() {
        let now = OffsetDateTime::from_unix_timestamp(971_186_136).unwrap();
        let line = noted(b"x").common(&ended(), now);
        assert_eq!(
            line,
            r#"192.0.2.1 - - [10/Oct/2000:13:55:36 +0000] "GET /a?b HTTP/2.0" 200 12"#
        );
    }

    #[test]
    fn line_has_the_last_server_and_why_that_failed() {
        let (mut noted, note) = (noted(b"x"), Note::default());
        noted.upstream = Some(note.clone());
        let fields = |noted: &RequestRecord| {
            let json: serde_json::Value =
                serde_json::from_str(&noted.line(&ended(), Format::Json)).unwrap();
            (
                json["upstream"].as_str().map(str::to_owned),
                json["upstream_error"].as_str().map(str::to_owned),
            )
        };
        assert_eq!(fields(&noted), (None, None));
        note.tries(&"http://10.0.0.1:80");
        note.failed("it is gone".to_owned());
        note.tries(&"http://10.0.0.2:80");
        assert_eq!(fields(&noted), (Some("http://10.0.0.2:80".to_owned()), None));
        note.tries(&"http://10.0.0.2:80");
        note.failed("so is it".to_owned());
        assert_eq!(
            fields(&noted),
            (Some("http://10.0.0.2:80".to_owned()), Some("so is it".to_owned()))
        );
    }

    #[test]
    fn field_cannot_end_its_quotes_or_its_line() {
        let line = noted(b"a\"b\\c\xffd\te").line(&ended(), Format::Combined);
        assert!(line.ends_with("\"-\" \"a\\x22b\\x5Cc\\xFFd\\x09e\"\n"), "{line}");
        let line = noted(b"a\"b\xff").line(&ended(), Format::Json);
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&json["user_agent"], &json["status"], &json["milliseconds"]),
            (&"a\"b\u{fffd}".into(), &200.into(), &1.5.into())
        );
        assert_eq!(
            (&json["server_name"], &json["early_data"], &json["host"]),
            (&"example.org".into(), &true.into(), &"example.org".into())
        );
    }
}
