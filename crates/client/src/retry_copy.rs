//! A copy of a request for a retry.

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use pronghorn_engine::Body;

/// A compact copy of a request. Most copies are never used, so the field lines are stored in one
/// allocation.
pub(crate) struct RequestCopy {
    method: Method,
    uri: Uri,
    version: Version,
    lines: Lines,
    extensions: Extensions,
    content: Content,
}

/// The body of the copy. A copy lives as long as its request, so an empty body takes no space.
enum Content {
    Empty,
    Full(Box<Body>),
    /// The body is not in memory.
    Missing,
}

impl RequestCopy {
    pub(crate) fn of(request: &Request<Body>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            lines: Lines::of(request.headers()),
            extensions: request.extensions().clone(),
            content: match request.body().try_clone() {
                Some(body) if body.is_end_stream() => Content::Empty,
                Some(body) => Content::Full(Box::new(body)),
                None => Content::Missing,
            },
        }
    }

    /// Returns the request, and whether its body is included.
    pub(crate) fn into_request(self) -> (Box<Request<Body>>, bool) {
        let (is_whole, content) = match self.content {
            Content::Empty => (true, Body::empty()),
            Content::Full(body) => (true, *body),
            Content::Missing => (false, Body::empty()),
        };
        let mut request = Box::new(Request::new(content));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.lines.to_map();
        *request.extensions_mut() = self.extensions;
        (request, is_whole)
    }
}

/// Field lines, each as [`LENGTHS`] bytes, the name and the value.
struct Lines(Vec<u8>);

/// Length of the name (2 bytes), length of the value (4), and the sensitive flag.
const LENGTHS: usize = 7;

/// Typical size of a field line.
const LINE_BYTES: usize = 48;

impl Lines {
    fn of(headers: &HeaderMap) -> Self {
        let mut text = Vec::with_capacity(headers.len() * LINE_BYTES);
        for (name, value) in headers {
            let (name, value, sensitive) =
                (name.as_str().as_bytes(), value.as_bytes(), value.is_sensitive().into());
            // A name has at most 64 KiB, and a value of more than 4 GiB could not have been sent
            // either.
            let ([name_0, name_1], [value_0, value_1, value_2, value_3]) =
                ((name.len() as u16).to_le_bytes(), (value.len() as u32).to_le_bytes());
            text.reserve(LENGTHS + name.len() + value.len());
            text.extend_from_slice(&[
                name_0, name_1, value_0, value_1, value_2, value_3, sensitive,
            ]);
            text.extend_from_slice(name);
            text.extend_from_slice(value);
        }
        Self(text)
    }

    fn to_map(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut rest = &self.0[..];
        while let Some(([name_0, name_1, value_0, value_1, value_2, value_3, sensitive], after)) =
            rest.split_first_chunk::<LENGTHS>()
        {
            let (name, after) = after.split_at(u16::from_le_bytes([*name_0, *name_1]).into());
            let (value, after) = after
                .split_at(u32::from_le_bytes([*value_0, *value_1, *value_2, *value_3]) as usize);
            let name = HeaderName::from_bytes(name).expect("invariant: it was a name");
            let mut value = HeaderValue::from_bytes(value).expect("invariant: it was a value");
            value.set_sensitive(*sensitive != 0);
            headers.append(name, value);
            rest = after;
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_is_the_request_again() {
        let mut request =
            Request::post("https://example.org/a?b").body(Body::from("content")).unwrap();
        let lines = [
            ("accept", "a"),
            ("x-one", "1"),
            ("x-one", "2"),
            ("x-empty", ""),
            ("cookie", "secret"),
        ];
        for (name, value) in lines {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(name == "cookie");
            request.headers_mut().append(name, value);
        }
        request.extensions_mut().insert(7_u8);
        let (again, is_whole) = RequestCopy::of(&request).into_request();
        assert!(is_whole);
        assert_eq!(
            (again.method(), again.uri(), again.version()),
            (request.method(), request.uri(), request.version())
        );
        assert_eq!(again.headers(), request.headers());
        assert!(
            again.headers()["cookie"].is_sensitive() && !again.headers()["accept"].is_sensitive()
        );
        assert_eq!(again.extensions().get(), Some(&7_u8));
        assert_eq!(again.body().size_hint().exact(), Some(7));
    }

    #[test]
    fn content_that_is_not_in_memory_is_missing() {
        let content = http_body_util::BodyExt::map_err(Body::from("content"), |error| error);
        let request = Request::post("https://example.org/").body(Body::stream(content)).unwrap();
        let (again, is_whole) = RequestCopy::of(&request).into_request();
        assert!(!is_whole && again.body().is_end_stream());
    }
}
