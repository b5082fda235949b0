//! Completing the heads of responses: the fields that the engine adds, and the length of content.

use std::rc::Rc;

use http::header::{ALT_SVC, CONTENT_LENGTH, DATE, SERVER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Body as _;

use crate::Response;
use crate::context::Context;
use crate::shared_fields::{PresentFields, announced_length};

/// What a response needs besides the field lines that its handler set.
pub(crate) struct AddedFields<'a> {
    pub(crate) alt_svc: Option<&'a HeaderValue>,
    pub(crate) server: Option<&'a HeaderValue>,
    pub(crate) date: Option<Rc<HeaderValue>>,
    pub(crate) content_length: Option<u64>,
    /// Content may follow.
    pub(crate) has_content: bool,
    /// The handler set a `priority` line (RFC 9218).
    pub(crate) has_priority: bool,
    /// The handler announced trailers.
    has_trailer: bool,
}

impl AddedFields<'_> {
    fn insert_into(self, headers: &mut HeaderMap) {
        let AddedFields { alt_svc, server, date, content_length, .. } = self;
        let mut digits = itoa::Buffer::new();
        let length = content_length.map(|length| {
            HeaderValue::from_str(digits.format(length))
                .expect("invariant: digits are visible ASCII")
        });
        for (name, value) in [
            (SERVER, server.cloned()),
            (ALT_SVC, alt_svc.cloned()),
            (DATE, date.map(Rc::unwrap_or_clone)),
            (CONTENT_LENGTH, length),
        ] {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
    }
}

impl Context {
    /// Completes a response's head, drops content that must not be sent, and holds the rest to its
    /// announced length.
    ///
    /// Returns whether content may follow.
    pub(crate) fn prepare(
        &self,
        method: &Method,
        alt_svc: Option<&HeaderValue>,
        response: &mut Response,
    ) -> bool {
        response.fields_mut();
        let added = self.complete(method, alt_svc, response);
        let has_content = added.has_content;
        added.insert_into(&mut response.headers);
        has_content
    }

    /// Like [`Context::prepare`], for HTTP/1.1. Its library writes the date, and the length of
    /// content if there is any, straight into its buffer.
    ///
    /// Returns whether trailers are announced.
    pub(crate) fn prepare_for_http1(
        &self,
        method: &Method,
        alt_svc: Option<&HeaderValue>,
        response: &mut Response,
    ) -> bool {
        response.fields_mut();
        let mut added = self.complete(method, alt_svc, response);
        added.date = None;
        added.content_length = added.content_length.filter(|_| !added.has_content);
        let (has_trailer, has_content) = (added.has_trailer, added.has_content);
        added.insert_into(&mut response.headers);
        if has_trailer && has_content {
            // A message with an announced length cannot carry trailers, unlike over HTTP/2 and
            // HTTP/3. The body is still held to that length.
            response.headers.remove(CONTENT_LENGTH);
        }
        has_trailer
    }

    /// Like [`Context::prepare`], but returns the missing lines instead of inserting them. Shared
    /// lines stay shared if there are no others and none of them has to be removed.
    pub(crate) fn complete<'a>(
        &'a self,
        method: &Method,
        alt_svc: Option<&'a HeaderValue>,
        response: &mut Response,
    ) -> AddedFields<'a> {
        if !response.headers.is_empty() {
            response.fields_mut();
        }
        let present = response
            .shared
            .as_ref()
            .map_or_else(|| PresentFields::of(&response.headers), |shared| shared.present());
        if response.status.is_informational() {
            // A final response needs a final status. An interim one would leave the client waiting.
            response.status = StatusCode::INTERNAL_SERVER_ERROR;
        }
        let status = response.status;
        if present.transfer_encoding {
            // The protocol decides how content is delimited.
            response.fields_mut().remove(TRANSFER_ENCODING);
        }
        // RFC 9110, section 6.4.1.
        let never_has_content =
            status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let without_content = never_has_content || method == Method::HEAD;
        let size = response.body.size_hint().exact();
        let mut has_length =
            present.content_length && self.keeps_length(response, size, without_content);
        if status == StatusCode::NO_CONTENT && has_length {
            //= RFC 9110 section 8.6
            //# A server MUST NOT send a Content-Length header field in any response with a status code of 1xx (Informational) or 204 (No
            //# Content).
            response.fields_mut().remove(CONTENT_LENGTH);
            has_length = false;
        }
        // Over HTTP/1.1 content of a known length cannot carry trailers. And an empty body in
        // answer to HEAD does not give the length of the answer to GET.
        let is_unknown = |size: &u64| *size == 0 && without_content;
        let content_length = size.filter(|size| {
            !never_has_content && !has_length && !present.trailer && !is_unknown(size)
        });
        if without_content {
            response.body.discard();
        }
        AddedFields {
            // Over HTTP/3 too: it renews what the client remembers. Without it, Chromium forced to
            // HTTP/3 held a page's requests back about twice as long. That it then takes the server
            // for one without priorities is a guess.
            alt_svc: alt_svc.filter(|_| !present.alt_svc),
            server: self.config.server.as_ref().filter(|_| !present.server),
            date: (!present.date).then(|| self.date.value(self.handle.now())),
            content_length,
            // Content of no bytes may still be followed by trailers, or by a failure.
            has_content: !without_content && !response.body.is_end_stream(),
            has_priority: present.priority,
            has_trailer: present.trailer,
        }
    }

    /// Makes `content-length` and the content agree. If the size is known the field is corrected,
    /// otherwise the content is held to the field. Over HTTP/1.1 a client would take excess bytes
    /// for the next response, or the next response for missing bytes.
    ///
    /// Returns whether the line stays.
    fn keeps_length(
        &self,
        response: &mut Response,
        size: Option<u64>,
        without_content: bool,
    ) -> bool {
        let announced = response
            .shared
            .as_ref()
            .map_or_else(|| announced_length(&response.headers), |shared| shared.announced());
        match (announced, size) {
            // Responses to HEAD and 304 responses announce content that they do not have.
            (Some(_), _) if without_content => {}
            (Some(announced), Some(size)) if announced == size => {}
            (Some(announced), None) => response.body.expect_bytes(announced),
            _ => {
                self.stats.content_lengths_corrected.add(1);
                response.fields_mut().remove(CONTENT_LENGTH);
                return false;
            }
        }
        true
    }
}
