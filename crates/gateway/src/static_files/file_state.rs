//! The headers of a file's responses, for any client.

use std::ops::Range;
use std::sync::Arc;

use http::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use pronghorn_engine::SharedFields;

use crate::static_files::coding::Coding;
use crate::static_files::conditional::Validators;
use crate::static_files::multipart::{self, Multipart};
use crate::static_files::range::{self, RangeRequest};

/// The kind of a file's representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// The only representation.
    Only,
    /// Uncompressed; compressed ones may exist.
    Plain,
    /// Compressed.
    Coded(Coding),
}

impl Variant {
    /// Returns the content coding.
    pub(crate) fn coding(self) -> Option<Coding> {
        if let Self::Coded(coding) = self { Some(coding) } else { None }
    }
}

/// One version of a file, with its header fields, which are built once.
pub(crate) struct FileState {
    length: u64,
    validators: Validators,
    /// Fields of a response with the whole content.
    fields: Arc<SharedFields>,
}

/// The response to a request for a file.
pub(crate) enum Outcome {
    /// The whole content.
    Whole(Arc<SharedFields>),
    /// One part of the content.
    Part(HeaderMap, Range<u64>),
    /// Several parts of the content.
    Parts(HeaderMap, Multipart, Vec<Range<u64>>),
    NotModified(HeaderMap),
    PreconditionFailed,
    /// 416 with this value of `content-range`.
    RangeNotSatisfiable(HeaderValue),
}

impl FileState {
    /// `content_type` is the type of the uncoded content.
    pub(crate) fn new(
        content_type: HeaderValue,
        length: u64,
        validators: Validators,
        variant: Variant,
    ) -> Self {
        let mut fields = HeaderMap::with_capacity(7);
        fields.insert(ETAG, validators.etag.clone());
        if let Some(date) = validators.last_modified {
            fields.insert(LAST_MODIFIED, field(&httpdate::fmt_http_date(date)));
        }
        fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(CONTENT_TYPE, content_type);
        fields.insert(CONTENT_LENGTH, length.into());
        if variant != Variant::Only {
            fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if let Variant::Coded(coding) = variant {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        Self { length, validators, fields: Arc::new(SharedFields::new(fields)) }
    }

    #[cfg(test)]
    pub(crate) fn of_length(length: u64) -> Self {
        let validators =
            Validators { etag: HeaderValue::from_static("\"1\""), last_modified: None };
        Self::new(HeaderValue::from_static("text/plain"), length, validators, Variant::Only)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the `vary` field, if there may be several representations.
    pub(crate) fn vary(&self) -> Option<&HeaderValue> {
        self.fields.lines().get(VARY)
    }

    /// Returns the outcome of a GET or HEAD request with these fields.
    pub(crate) fn answer(&self, method: &Method, request: &HeaderMap) -> Outcome {
        if !request.keys().any(may_ask_for_less) {
            return Outcome::Whole(self.fields.clone());
        }
        let validators = &self.validators;
        if validators.precondition_failed(request) {
            return Outcome::PreconditionFailed;
        }
        if validators.not_modified(request) {
            let kept = |name: HeaderName| {
                self.fields.lines().get(&name).map(|value| (name, value.clone()))
            };
            return Outcome::NotModified(
                [ETAG, LAST_MODIFIED, VARY].into_iter().filter_map(kept).collect(),
            );
        }
        let length = self.length;
        let asked = match request.get(RANGE).and_then(|field| field.to_str().ok()) {
            // RFC 9110, section 14.2: the field is ignored for any other method.
            Some(field) if method == Method::GET && validators.range_applies(request) => {
                range::parse(field, length)
            }
            _ => RangeRequest::Whole,
        };
        match asked {
            RangeRequest::Whole => Outcome::Whole(self.fields.clone()),
            RangeRequest::Part(part) => {
                let mut fields = self.fields.lines().clone();
                fields.insert(CONTENT_LENGTH, (part.end - part.start).into());
                fields.insert(
                    CONTENT_RANGE,
                    field(&format!("bytes {}-{}/{length}", part.start, part.end - 1)),
                );
                Outcome::Part(fields, part)
            }
            RangeRequest::Parts(parts) => {
                let multipart = Multipart::new(self.fields.lines()[CONTENT_TYPE].clone(), length);
                Outcome::Parts(multipart::fields(self.fields.lines(), &multipart), multipart, parts)
            }
            RangeRequest::Unsatisfiable => {
                Outcome::RangeNotSatisfiable(field(&format!("bytes */{length}")))
            }
        }
    }
}

/// Returns whether a field of this name can lead to another response than the whole file. One pass
/// over all names is cheaper than a search for each.
fn may_ask_for_less(name: &HeaderName) -> bool {
    *name == IF_MATCH
        || *name == IF_NONE_MATCH
        || *name == IF_MODIFIED_SINCE
        || *name == IF_UNMODIFIED_SINCE
        || *name == RANGE
}

fn field(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}
