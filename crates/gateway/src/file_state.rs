//! What is said about a file, whoever asks.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
    LAST_MODIFIED, RANGE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pronghorn_engine::SharedFields;

use crate::conditional::Validators;
use crate::range::{self, Asked};

/// One state of a file, with the fields that describe it made once.
pub(crate) struct FileState {
    length: u64,
    validators: Validators,
    /// The fields of an answer with all of the content.
    fields: Arc<SharedFields>,
}

/// How a request for a file is answered.
pub(crate) enum Outcome {
    /// With all of the content.
    Whole(Arc<SharedFields>),
    /// With a part of the content.
    Part(HeaderMap, Range<u64>),
    NotModified(HeaderMap),
    PreconditionFailed,
    /// With the value of `content-range`.
    RangeNotSatisfiable(HeaderValue),
}

impl FileState {
    /// `modified` is in seconds and nanoseconds since 1970.
    pub(crate) fn new(path: &[u8], length: u64, modified: (i64, u32)) -> Self {
        let seconds = u64::try_from(modified.0).unwrap_or(0);
        // Two states of a file within one tick of the file system's clock nearly always differ in length.
        let etag = field(&format!("\"{seconds:x}.{:x}-{length:x}\"", modified.1));
        let last_modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut fields = HeaderMap::with_capacity(5);
        fields.insert(ETAG, etag.clone());
        fields.insert(LAST_MODIFIED, field(&httpdate::fmt_http_date(last_modified)));
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(CONTENT_TYPE, content_type(path));
        fields.insert(CONTENT_LENGTH, length.into());
        Self { length, validators: Validators { etag, last_modified }, fields: Arc::new(SharedFields::new(fields)) }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Answers a GET or HEAD request with these fields.
    pub(crate) fn answer(&self, method: &Method, request: &HeaderMap) -> Outcome {
        if !request.keys().any(may_ask_for_less) {
            return Outcome::Whole(self.fields.clone());
        }
        let validators = &self.validators;
        if validators.precondition_failed(request) {
            return Outcome::PreconditionFailed;
        }
        if validators.not_modified(request) {
            let kept = |name: HeaderName| (name.clone(), self.fields.lines()[name].clone());
            return Outcome::NotModified([kept(ETAG), kept(LAST_MODIFIED)].into_iter().collect());
        }
        let length = self.length;
        let asked = match request.get(RANGE).and_then(|field| field.to_str().ok()) {
            // RFC 9110, section 14.2: for any other method the field is to be ignored.
            Some(field) if method == Method::GET && validators.range_applies(request) => range::parse(field, length),
            _ => Asked::Whole,
        };
        match asked {
            Asked::Whole => Outcome::Whole(self.fields.clone()),
            Asked::Part(part) => {
                let mut fields = self.fields.lines().clone();
                fields.insert(CONTENT_LENGTH, (part.end - part.start).into());
                fields.insert(CONTENT_RANGE, field(&format!("bytes {}-{}/{length}", part.start, part.end - 1)));
                Outcome::Part(fields, part)
            }
            Asked::Unsatisfiable => Outcome::RangeNotSatisfiable(field(&format!("bytes */{length}"))),
        }
    }
}

/// Whether a field of this name can have another answer than the whole file. One look at each name is less than a search for each.
fn may_ask_for_less(name: &HeaderName) -> bool {
    *name == IF_MATCH || *name == IF_NONE_MATCH || *name == IF_MODIFIED_SINCE || *name == IF_UNMODIFIED_SINCE || *name == RANGE
}

fn content_type(path: &[u8]) -> HeaderValue {
    // Without a type, a browser looks into the content, and what looks like a page runs as one.
    let guess = mime_guess::from_path(OsStr::from_bytes(path)).first_raw().unwrap_or("application/octet-stream");
    if guess.starts_with("text/") { field(&format!("{guess}; charset=utf-8")) } else { HeaderValue::from_static(guess) }
}

fn field(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}
