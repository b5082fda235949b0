//! What is said about a file, whoever asks.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pronghorn_engine::SharedFields;

use crate::coding::Coding;
use crate::conditional::Validators;
use crate::multipart::{self, Multipart};
use crate::range::{self, Asked};

/// Of which representations of a file one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// There is no other.
    Only,
    /// As it is; there may be compressed ones beside it.
    Plain,
    /// Compressed.
    Coded(Coding),
}

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
    /// With several parts of it.
    Parts(HeaderMap, Multipart, Vec<Range<u64>>),
    NotModified(HeaderMap),
    PreconditionFailed,
    /// With the value of `content-range`.
    RangeNotSatisfiable(HeaderValue),
}

impl FileState {
    /// `modified` is in seconds and nanoseconds since 1970, `path` that of the content without a coding.
    pub(crate) fn new(path: &[u8], length: u64, modified: (i64, u32), variant: Variant) -> Self {
        let seconds = u64::try_from(modified.0).unwrap_or(0);
        // Two states of a file within one tick of the file system's clock nearly always differ in length.
        let etag = match variant {
            Variant::Coded(coding) => field(&format!("\"{seconds:x}.{:x}-{length:x}-{}\"", modified.1, coding.name())),
            Variant::Only | Variant::Plain => field(&format!("\"{seconds:x}.{:x}-{length:x}\"", modified.1)),
        };
        let last_modified = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut fields = HeaderMap::with_capacity(7);
        fields.insert(ETAG, etag.clone());
        fields.insert(LAST_MODIFIED, field(&httpdate::fmt_http_date(last_modified)));
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(CONTENT_TYPE, content_type(path));
        fields.insert(CONTENT_LENGTH, length.into());
        if variant != Variant::Only {
            fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Variant::Coded(coding) = variant {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
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
            let kept = |name: HeaderName| self.fields.lines().get(&name).map(|value| (name, value.clone()));
            return Outcome::NotModified([ETAG, LAST_MODIFIED, VARY].into_iter().filter_map(kept).collect());
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
            Asked::Parts(parts) => {
                let multipart = Multipart::new(self.fields.lines()[CONTENT_TYPE].clone(), length);
                Outcome::Parts(multipart::fields(self.fields.lines(), &multipart), multipart, parts)
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
