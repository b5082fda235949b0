//! What is said about a file, whoever asks.

use std::ops::Range;
use std::sync::Arc;

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

impl Variant {
    /// How its content is compressed.
    pub(crate) fn coding(self) -> Option<Coding> {
        if let Self::Coded(coding) = self { Some(coding) } else { None }
    }
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
    /// `content_type`: of the content without a coding.
    pub(crate) fn new(content_type: HeaderValue, length: u64, validators: Validators, variant: Variant) -> Self {
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
        let validators = Validators { etag: HeaderValue::from_static("\"1\""), last_modified: None };
        Self::new(HeaderValue::from_static("text/plain"), length, validators, Variant::Only)
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// What responses with this file depend on, if there are several of it.
    pub(crate) fn vary(&self) -> Option<&HeaderValue> {
        self.fields.lines().get(VARY)
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

fn field(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}
