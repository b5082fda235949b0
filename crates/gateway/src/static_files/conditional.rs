//! Conditional requests (RFC 9110, section 13).

use std::time::SystemTime;

use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};
use http::{HeaderMap, HeaderValue};

/// The validators of one version of a file.
#[derive(Clone, Debug)]
pub(crate) struct Validators {
    /// A strong entity tag, quotes included.
    pub(crate) etag: HeaderValue,
    /// Modification time in whole seconds, as in the field. If `None`, conditions on it are
    /// ignored.
    pub(crate) last_modified: Option<SystemTime>,
}

impl Validators {
    /// Returns whether a precondition fails, so that the response is 412.
    pub(crate) fn precondition_failed(&self, request: &HeaderMap) -> bool {
        // RFC 9110, section 13.2.2: the date counts only without a tag, here too. The comparison is
        // strong.
        if request.contains_key(IF_MATCH) {
            return !request.get_all(IF_MATCH).iter().any(|field| self.is_listed(field, false));
        }
        //= RFC 9110 section 13.1.4
        //# A recipient MUST ignore the If-Unmodified-Since header field if the resource does not have a modification date available.
        self.last_modified
            .zip(date(request.get(IF_UNMODIFIED_SINCE)))
            .is_some_and(|(modified, since)| modified > since)
    }

    /// Returns whether the client has this version already, so that the response is 304.
    pub(crate) fn not_modified(&self, request: &HeaderMap) -> bool {
        // RFC 9110, section 13.2.2: the date counts only without a tag.
        if request.contains_key(IF_NONE_MATCH) {
            return request.get_all(IF_NONE_MATCH).iter().any(|field| self.is_listed(field, true));
        }
        //= RFC 9110 section 13.1.3
        //# A recipient MUST ignore the If-Modified-Since header field if the resource does not have a modification date available.
        self.last_modified
            .zip(date(request.get(IF_MODIFIED_SINCE)))
            .is_some_and(|(modified, since)| modified <= since)
    }

    /// Returns whether a range request applies to this version.
    pub(crate) fn range_applies(&self, request: &HeaderMap) -> bool {
        match request.get(IF_RANGE) {
            None => true,
            // A weak tag never matches here, and the server's tags are strong.
            Some(field) if field.as_bytes().starts_with(b"\"") => field == self.etag,
            field => self.last_modified.is_some() && date(field) == self.last_modified,
        }
    }

    fn is_listed(&self, field: &HeaderValue, weak: bool) -> bool {
        let is_this = |tag: &str| {
            tag == "*" || self.etag == *tag.strip_prefix("W/").filter(|_| weak).unwrap_or(tag)
        };
        field.to_str().is_ok_and(|list| list.split(',').map(str::trim).any(is_this))
    }
}

fn date(field: Option<&HeaderValue>) -> Option<SystemTime> {
    httpdate::parse_http_date(field?.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn validators() -> Validators {
        let last_modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        Validators { etag: HeaderValue::from_static("\"abc\""), last_modified }
    }

    fn fields(fields: &[(http::HeaderName, &'static str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn listed_tag_is_not_modified() {
        for list in ["\"abc\"", "W/\"abc\"", "\"x\", \"abc\"", "*"] {
            assert!(validators().not_modified(&fields(&[(IF_NONE_MATCH, list)])), "{list}");
        }
    }

    #[test]
    fn other_tag_is_modified_whatever_the_date_says() {
        let request = fields(&[
            (IF_NONE_MATCH, "\"x\""),
            (IF_MODIFIED_SINCE, "Sun, 06 Nov 2044 08:49:37 GMT"),
        ]);
        assert!(!validators().not_modified(&request));
    }

    #[test]
    fn date_decides_without_a_tag() {
        assert!(
            validators()
                .not_modified(&fields(&[(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT")]))
        );
        assert!(
            !validators()
                .not_modified(&fields(&[(IF_MODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT")]))
        );
        assert!(!validators().not_modified(&fields(&[(IF_MODIFIED_SINCE, "yesterday")])));
    }

    #[test]
    fn precondition_fails_for_another_state() {
        for (name, value, failed) in [
            (IF_MATCH, "\"abc\"", false),
            (IF_MATCH, "*", false),
            (IF_MATCH, "W/\"abc\"", true),
            (IF_MATCH, "\"x\"", true),
            (IF_UNMODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:37 GMT", false),
            (IF_UNMODIFIED_SINCE, "Sun, 06 Nov 1994 08:49:36 GMT", true),
            (IF_UNMODIFIED_SINCE, "yesterday", false),
        ] {
            assert_eq!(
                validators().precondition_failed(&fields(&[(name.clone(), value)])),
                failed,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn range_applies_to_the_same_state_only() {
        assert!(validators().range_applies(&HeaderMap::new()));
        assert!(validators().range_applies(&fields(&[(IF_RANGE, "\"abc\"")])));
        assert!(
            validators().range_applies(&fields(&[(IF_RANGE, "Sun, 06 Nov 1994 08:49:37 GMT")]))
        );
        assert!(!validators().range_applies(&fields(&[(IF_RANGE, "W/\"abc\"")])));
        assert!(!validators().range_applies(&fields(&[(IF_RANGE, "\"x\"")])));
        assert!(
            !validators().range_applies(&fields(&[(IF_RANGE, "Sun, 06 Nov 1994 08:49:38 GMT")]))
        );
    }

    #[test]
    fn condition_on_a_date_is_ignored_where_none_is_known() {
        let undated = Validators { last_modified: None, ..validators() };
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert!(!undated.not_modified(&fields(&[(IF_MODIFIED_SINCE, date)])));
        assert!(!undated.precondition_failed(&fields(&[(IF_UNMODIFIED_SINCE, date)])));
        assert!(!undated.range_applies(&fields(&[(IF_RANGE, date)])));
        assert!(!undated.range_applies(&fields(&[(IF_RANGE, "yesterday")])));
        assert!(undated.not_modified(&fields(&[(IF_NONE_MATCH, "\"abc\"")])));
    }
}
