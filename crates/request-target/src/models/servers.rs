//! How servers read a path. Each model is simple and shares no code with the gateway's rules.

#![expect(
    clippy::unnecessary_wraps,
    reason = "some servers refuse paths, and all are called alike"
)]

/// The segments between slashes, decoded as far as the server decodes them.
pub(super) type Segments = Vec<Vec<u8>>;

/// A server's model; `None` means that the server refuses the path.
type Server = fn(&str) -> Option<Segments>;

pub(super) const SERVERS: [(&str, Server); 12] = [
    ("WSGI", wsgi),
    ("WSGI, dots resolved", wsgi_resolving),
    ("Node.js, by segments", node),
    ("Node.js, by URL", node_url),
    ("nginx", nginx),
    ("PHP", php),
    ("Tomcat", tomcat),
    ("Tomcat, encoded slashes decoded", tomcat_decoding),
    ("Tomcat, backslashes too", tomcat_backslashes),
    ("Spring, decoded first", spring),
    ("IIS", iis),
    ("files", files),
];

/// `PATH_INFO` is decoded as a whole.
fn wsgi(path: &str) -> Option<Segments> {
    Some(split(&decode_all(path.as_bytes())))
}

fn wsgi_resolving(path: &str) -> Option<Segments> {
    resolve(wsgi(path)?)
}

/// Routers that split at slashes and then decode each segment.
fn node(path: &str) -> Option<Segments> {
    Some(split(path.as_bytes()).iter().map(|segment| decode_all(segment)).collect())
}

/// `new URL(path, base)`: a host follows two slashes of either kind.
fn node_url(path: &str) -> Option<Segments> {
    let path = path.replace('\\', "/");
    let path = match path.strip_prefix("//") {
        Some(rest) => rest
            .trim_start_matches('/')
            .find('/')
            .map_or("/", |end| &rest.trim_start_matches('/')[end..]),
        None => &path,
    };
    let segments = split(path.as_bytes()).into_iter().map(|segment| {
        match segment.to_ascii_lowercase().as_slice() {
            b"%2e" => b".".to_vec(),
            b"%2e." | b".%2e" | b"%2e%2e" => b"..".to_vec(),
            _ => segment,
        }
    });
    Some(resolve_leniently(segments.collect()).iter().map(|segment| decode_all(segment)).collect())
}

/// Decoded as a whole, slashes merged, dots resolved.
fn nginx(path: &str) -> Option<Segments> {
    resolve(merge(wsgi(path)?))
}

/// A script that decodes `REQUEST_URI` and looks up the file.
fn php(path: &str) -> Option<Segments> {
    Some(resolve_leniently(merge(wsgi(path)?)))
}

fn tomcat(path: &str) -> Option<Segments> {
    let has = |what: &str| path.to_ascii_lowercase().contains(what);
    if has("%2f") || has("%5c") || has("\\") { None } else { tomcat_decoding(path) }
}

/// Parameters are removed before decoding.
fn tomcat_decoding(path: &str) -> Option<Segments> {
    let kept: Vec<_> = split(path.as_bytes())
        .iter()
        .map(|segment| decode_all(without_parameters(segment)))
        .collect();
    resolve(merge(split(&joined(&kept))))
}

fn tomcat_backslashes(path: &str) -> Option<Segments> {
    let kept: Vec<_> = split(path.as_bytes())
        .iter()
        .map(|segment| decode_all(without_parameters(segment)))
        .collect();
    resolve(merge(split(&with_slashes(&joined(&kept)))))
}

/// Parameters are removed after decoding.
fn spring(path: &str) -> Option<Segments> {
    let kept = wsgi(path)?.iter().map(|segment| without_parameters(segment).to_vec()).collect();
    resolve(merge(kept))
}

fn iis(path: &str) -> Option<Segments> {
    resolve(merge(split(&with_slashes(&decode_all(path.as_bytes())))))
}

/// The gateway's own folders: a file name contains no encoded slash.
fn files(path: &str) -> Option<Segments> {
    let segments = node(path)?;
    if segments.iter().any(|segment| segment.contains(&b'/')) {
        None
    } else {
        resolve(merge(segments))
    }
}

/// Decodes each escape once. Malformed escapes stay.
pub(super) fn decode_all(text: &[u8]) -> Vec<u8> {
    let (mut decoded, mut at) = (Vec::with_capacity(text.len()), 0);
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits
            .filter(|_| text[at] == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok())
        {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(text[at]);
            at += 1;
        }
    }
    decoded
}

/// Removes empty segments, which no router compares, except for the last one, which marks a folder.
pub(super) fn merge(segments: Segments) -> Segments {
    let last = segments.len().saturating_sub(1);
    let kept = segments
        .into_iter()
        .enumerate()
        .filter(|(index, segment)| !segment.is_empty() || *index == last);
    kept.map(|(_, segment)| segment).collect()
}

fn split(path: &[u8]) -> Segments {
    path.split(|byte| *byte == b'/').skip(1).map(<[u8]>::to_vec).collect()
}

pub(super) fn joined(segments: &Segments) -> Vec<u8> {
    segments.iter().fold(Vec::new(), |path, segment| [&path[..], b"/", segment].concat())
}

fn with_slashes(path: &[u8]) -> Vec<u8> {
    path.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect()
}

fn without_parameters(segment: &[u8]) -> &[u8] {
    segment.split(|byte| *byte == b';').next().unwrap_or_default()
}

/// Resolves dot segments; a path above the root is refused.
fn resolve(segments: Segments) -> Option<Segments> {
    resolved(segments, false)
}

/// Resolves dot segments; the root is its own parent.
fn resolve_leniently(segments: Segments) -> Segments {
    resolved(segments, true).unwrap_or_default()
}

fn resolved(segments: Segments, is_lenient: bool) -> Option<Segments> {
    let last = segments.len().saturating_sub(1);
    let mut kept = Segments::new();
    for (index, segment) in segments.into_iter().enumerate() {
        let is_dots = matches!(segment.as_slice(), b"." | b"..");
        if segment == b".." && kept.pop().is_none() && !is_lenient {
            return None;
        }
        if !is_dots {
            kept.push(segment);
        } else if index == last {
            kept.push(Vec::new());
        }
    }
    Some(kept)
}
