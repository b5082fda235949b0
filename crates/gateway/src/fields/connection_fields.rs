//! Removal of the fields that a request's `connection` names.

use http::header::CONNECTION;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Connection options that are no field names, or whose fields are handled elsewhere.
const OWN: [&str; 10] = [
    "close",
    "keep-alive",
    "upgrade",
    "te",
    "trailer",
    "transfer-encoding",
    "http2-settings",
    "proxy-connection",
    // Fields that frame the message or name its host are never connection-specific, even if listed.
    "host",
    "content-length",
];

/// Removes the fields that the client's `connection` names, and their names, before anything is
/// added to the request. Otherwise a client could name a field that the gateway adds, such as those
/// about the client, its certificate or its site, and have it removed on the way to an upstream.
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    let is_own = |option: &[u8]| OWN.iter().any(|own| option.eq_ignore_ascii_case(own.as_bytes()));
    let options = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let options = options.map(<[u8]>::trim_ascii).filter(|option| !option.is_empty());
    let (own, named): (Vec<_>, Vec<_>) = options.partition(|option| is_own(option));
    if named.is_empty() {
        return;
    }
    let kept = HeaderValue::from_bytes(&own.join(&b", "[..]));
    let named: Vec<_> =
        named.into_iter().filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    for name in named {
        headers.remove(name);
    }
    match kept {
        Ok(kept) if !kept.is_empty() => _ = headers.insert(CONNECTION, kept),
        _ => _ = headers.remove(CONNECTION),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_goes_and_what_connections_need_stays() {
        for (lines, kept) in [
            (&["close"][..], "close"),
            (&["keep-alive, X-Own"], "keep-alive"),
            (&["x-own"], ""),
            (
                &["Upgrade , x-own,, host", "TE, content-length"],
                "Upgrade, host, TE, content-length",
            ),
            (&["a b, x-own, \u{1f}"], ""),
        ] {
            let mut headers: HeaderMap = [
                ("x-own", "1"),
                ("host", "a"),
                ("content-length", "5"),
                ("te", "trailers"),
                ("upgrade", "websocket"),
            ]
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .into_iter()
            .collect();
            for line in lines {
                headers.append(
                    CONNECTION,
                    HeaderValue::from_bytes(line.as_bytes())
                        .unwrap_or(HeaderValue::from_static("x-own")),
                );
            }
            remove_connection_fields(&mut headers);
            let said: Vec<_> = headers
                .get_all(CONNECTION)
                .iter()
                .map(|line| line.to_str().expect("text"))
                .collect();
            assert_eq!(said.join(", "), kept, "{lines:?}");
            assert_eq!(headers.contains_key("x-own"), *lines == ["close"]);
            assert!(
                ["host", "content-length", "te", "upgrade"]
                    .iter()
                    .all(|name| headers.contains_key(*name))
            );
        }
    }
}
