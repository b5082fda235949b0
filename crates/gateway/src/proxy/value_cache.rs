//! Field values of upstream responses, detached from the buffer they were read into.
//!
//! A response head is read into a buffer of 8 KiB, and each of its values keeps the whole buffer
//! alive. HTTP/2 sends a repeated line as an index into a table, for which the library keeps up to
//! 4096 bytes of lines for each connection. With a line that differs in each response, such as
//! `x-request-id`, these would be the buffers of 50 responses.

use std::cell::RefCell;

use http::header::{AGE, CONTENT_LENGTH, ETAG, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Number of cached values, one for each slot; the name selects the slot.
const PLACES: usize = 32;
/// Maximum length of a cached value.
const MAX_BYTES: usize = 256;

/// The latest field values of an upstream. Most responses repeat most values, so all clients share
/// one allocation.
#[derive(Default)]
pub(super) struct ValueCache(RefCell<[Option<(HeaderName, HeaderValue)>; PLACES]>);

impl ValueCache {
    /// Copies the values out of the buffer they were read into.
    pub(super) fn detach(&self, headers: &mut HeaderMap) {
        let mut latest = self.0.borrow_mut();
        for (name, value) in headers.iter_mut().filter(|(name, _)| is_kept(name)) {
            let place = &mut latest[place(name)];
            if let Some((known_name, known)) = place
                && *known == *value
                && known.is_sensitive() == value.is_sensitive()
                && known_name == name
            {
                *value = known.clone();
                continue;
            }
            let Ok(mut own) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
            own.set_sensitive(value.is_sensitive());
            if own.len() <= MAX_BYTES {
                *place = Some((name.clone(), own.clone()));
            }
            *value = own;
        }
    }
}

/// Returns whether the library keeps a line of this name in its table: it does not for fields that
/// usually differ in each response.
fn is_kept(name: &HeaderName) -> bool {
    ![AGE, CONTENT_LENGTH, ETAG, LOCATION, SET_COOKIE].contains(name)
}

/// Returns the slot of a name. Common response fields have distinct slots.
fn place(name: &HeaderName) -> usize {
    let text = name.as_str().as_bytes();
    let (first, last) =
        (text.first().copied().unwrap_or_default(), text.last().copied().unwrap_or_default());
    (5 * text.len() + usize::from(first) + 7 * usize::from(last)) % PLACES
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A head as read: all values in one buffer.
    fn head(lines: &[(&'static str, &str)]) -> (HeaderMap, Bytes) {
        let text = Bytes::from(lines.iter().map(|(_, value)| *value).collect::<String>());
        let mut headers = HeaderMap::new();
        let mut end = 0;
        for (name, value) in lines {
            let value = text.slice(end..end + value.len());
            end += value.len();
            headers.append(*name, HeaderValue::from_maybe_shared(value).expect("a value"));
        }
        (headers, text)
    }

    #[test]
    fn kept_values_leave_the_memory_of_their_head_and_stay_the_same() {
        let latest = ValueCache::default();
        let long = "x".repeat(MAX_BYTES + 1);
        for number in 0..3 {
            let id = format!("id-{number}");
            let lines = [
                ("server", "nginx"),
                ("date", "Mon, 23 Nov 2026 17:00:00 GMT"),
                ("x-request-id", &id),
                ("x-long", &long),
                ("x-empty", ""),
                ("vary", "a"),
                ("vary", "b"),
                ("content-length", "13"),
            ];
            let (mut headers, text) = head(&lines);
            headers.get_mut("server").expect("it is there").set_sensitive(number == 0);
            let before = headers.clone();
            latest.detach(&mut headers);
            assert_eq!(headers, before);
            assert_eq!(headers["server"].is_sensitive(), number == 0);
            let piece = text.as_ptr_range();
            let inside: Vec<_> = headers
                .iter()
                .filter(|(_, value)| piece.contains(&value.as_bytes().as_ptr()))
                .collect();
            assert_eq!(inside, [(&CONTENT_LENGTH, &HeaderValue::from_static("13"))]);
        }
    }

    #[test]
    fn what_responses_say_alike_is_one_piece_of_memory() {
        let latest = ValueCache::default();
        let of = |lines: &[(&'static str, &str)]| {
            let (mut headers, _) = head(lines);
            latest.detach(&mut headers);
            headers
        };
        let [first, second] = [("a", "nginx"), ("b", "nginx")]
            .map(|(id, server)| of(&[("x-request-id", id), ("server", server)]));
        assert_eq!(first["server"].as_bytes().as_ptr(), second["server"].as_bytes().as_ptr());
        assert_ne!(first["x-request-id"], second["x-request-id"]);
        let other = of(&[("server", "other")]);
        assert_eq!(
            (&first["server"], &other["server"]),
            (&HeaderValue::from_static("nginx"), &HeaderValue::from_static("other"))
        );
    }

    #[test]
    fn common_names_do_not_push_each_other_out() {
        let names = [
            "server",
            "date",
            "content-type",
            "last-modified",
            "accept-ranges",
            "cache-control",
            "vary",
            "x-request-id",
            "expires",
        ];
        let places: std::collections::BTreeSet<_> =
            names.iter().map(|name| place(&HeaderName::from_static(name))).collect();
        assert_eq!(places.len(), names.len());
    }
}
