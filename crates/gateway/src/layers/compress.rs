//! `compress`: responses compressed on the fly.

mod decision;
mod paced;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE,
    ETAG, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use pronghorn_engine::{Body, BodyError};
use schemars::JsonSchema;
use serde::Deserialize;
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::Predicate;
use tower_layer::Layer as _;
use tower_service::Service;

use self::decision::{Decision, FULL, TAKEN};
use self::paced::Paced;
use super::{Around, Layer, LocalService, Request, Response, WorkerContext};
use crate::config::Size;

/// Types compressed by default, besides types that end in `+json` and `+xml`, and `text/` except an
/// event stream.
const TYPES: [&str; 15] = [
    "application/javascript",
    "application/json",
    "application/manifest+json",
    "application/sql",
    "application/toml",
    "application/vnd.apple.mpegurl",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/xml",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
];

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
enum Encoding {
    #[serde(rename = "br")]
    Brotli,
    #[serde(rename = "zstd")]
    Zstd,
    #[serde(rename = "gzip")]
    Gzip,
}

/// Compression level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// As fast as possible.
    Fastest,
    /// Suits responses that are generated for one request.
    #[default]
    Default,
    /// Level 6 of each coding: for responses that a cache stores.
    Best,
}

/// Options of `compress`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Options {
    /// Minimum size; smaller responses are not compressed.
    min_size: Size,
    /// Content types to compress, replacing the default: text, JSON, XML, scripts, WebAssembly, and
    /// uncompressed fonts.
    types: Vec<String>,
    /// Content codings that may be used.
    encodings: Vec<Encoding>,
    /// Compression level.
    level: Level,
    /// Maximum number of responses compressed at once, on all workers; further ones are sent
    /// uncompressed. Each takes up to 12 MiB with Brotli, 6 MiB with Zstandard and 1 MiB with gzip.
    concurrent: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            min_size: Size(1 << 10),
            types: Vec::new(),
            encodings: vec![Encoding::Brotli, Encoding::Zstd, Encoding::Gzip],
            level: Level::Default,
            concurrent: 32,
        }
    }
}

impl Options {
    /// Returns whether a complete response is to be compressed; `size` is its size, if known.
    fn mean(&self, headers: &HeaderMap, size: Option<u64>) -> bool {
        size.is_none_or(|size| size >= self.min_size.0)
            && may_be_changed(headers)
            && is_of_type(headers, &self.types)
    }

    /// Returns whether the complete response, of which this is a part, would be compressed for some
    /// clients.
    fn mean_whole_of(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(CONTENT_ENCODING) {
            return false;
        }
        // The complete response's type is inside the parts.
        if headers
            .get(CONTENT_TYPE)
            .is_some_and(|line| line.as_bytes().starts_with(b"multipart/byteranges"))
        {
            return may_be_changed(headers);
        }
        let size = headers
            .get(CONTENT_RANGE)
            .and_then(|range| range.to_str().ok()?.rsplit_once('/')?.1.parse().ok());
        self.mean(headers, size)
    }
}

pub(super) struct Compress {
    options: Arc<Options>,
    slots: Arc<AtomicUsize>,
}

impl Compress {
    pub(super) fn new(options: Options) -> Result<Self, String> {
        if options.encodings.is_empty() {
            return Err("`encodings` is empty: remove the key, or remove the layer".to_owned());
        }
        Ok(Self { options: Arc::new(options), slots: Arc::default() })
    }
}

impl Layer for Compress {
    fn around(&self, inner: LocalService, _: &WorkerContext) -> LocalService {
        self.on(inner)
    }
}

impl Compress {
    fn on(&self, inner: LocalService) -> LocalService {
        let has = |encoding| self.options.encodings.contains(&encoding);
        let level = match self.options.level {
            Level::Fastest => CompressionLevel::Fastest,
            Level::Default => CompressionLevel::Default,
            // At higher levels Brotli takes at least twice the memory and time.
            Level::Best => CompressionLevel::Precise(6),
        };
        let layer = CompressionLayer::new()
            .br(has(Encoding::Brotli))
            .zstd(has(Encoding::Zstd))
            .gzip(has(Encoding::Gzip))
            .quality(level)
            .compress_when(Compressible {
                options: self.options.clone(),
                slots: self.slots.clone(),
            });
        let marked = LocalService::around(AddDecision, inner);
        let conclude =
            FinishCompression { options: self.options.clone(), slots: self.slots.clone() };
        LocalService::around(conclude, LocalService::new(layer.layer(marked)))
    }
}

/// Adds a [`Decision`] to each response's extensions, for [`Compressible`] to fill in, and paces
/// its body.
struct AddDecision;

impl Around for AddDecision {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let mut response = inner.call(request).await?;
        let decision = Decision::default();
        response.extensions_mut().insert(decision.clone());
        Ok(response.map(|body| {
            if body.is_end_stream() { body } else { Body::stream(Paced::new(body, decision)) }
        }))
    }
}

#[derive(Clone)]
struct Compressible {
    options: Arc<Options>,
    slots: Arc<AtomicUsize>,
}

impl Predicate for Compressible {
    fn should_compress<B: http_body::Body>(&self, response: &http::Response<B>) -> bool {
        let length = response
            .headers()
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok()?.parse().ok());
        let size = length.or_else(|| response.body().size_hint().exact());
        let is_meant = is_whole(response.status()) && self.options.mean(response.headers(), size);
        let Some(decision) = response.extensions().get::<Decision>().filter(|_| is_meant) else {
            return false;
        };
        let limit = self.options.concurrent;
        let taken = self
            .slots
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| {
                (open < limit).then_some(open + 1)
            })
            .is_ok();
        decision.0.store(if taken { TAKEN } else { FULL }, Ordering::Relaxed);
        taken
    }
}

fn is_whole(status: StatusCode) -> bool {
    !status.is_informational()
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED | StatusCode::PARTIAL_CONTENT
        )
}

//= RFC 9110 section 7.7
//# A proxy MUST NOT transform the content (Section 6.4) of a response message that contains a no-transform cache directive
fn may_be_changed(headers: &HeaderMap) -> bool {
    let directives = headers
        .get_all(CACHE_CONTROL)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    !directives
        .map(<[u8]>::trim_ascii)
        .any(|directive| directive.eq_ignore_ascii_case(b"no-transform"))
}

fn is_of_type(headers: &HeaderMap, types: &[String]) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE).and_then(|line| line.to_str().ok()) else {
        return false;
    };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !types.is_empty() {
        return types.iter().any(|one| match one.strip_suffix('*') {
            Some(start) => essence.starts_with(start),
            None => current_type(one) == current_type(&essence),
        });
    }
    // gRPC frames its messages and compresses them itself.
    if essence.starts_with("application/grpc") {
        return false;
    }
    let is_text = essence.starts_with("text/") && essence != "text/event-stream";
    is_text || essence.ends_with("+json") || essence.ends_with("+xml") || TYPES.contains(&&*essence)
}

/// Returns the registered type of scripts for its older names (RFC 9239, section 6): configurations
/// and servers use both.
fn current_type(name: &str) -> &str {
    match name {
        "application/javascript" | "application/x-javascript" => "text/javascript",
        other => other,
    }
}

/// Corrects the fields of compressed responses, and frees the slot at the end of the body.
struct FinishCompression {
    options: Arc<Options>,
    slots: Arc<AtomicUsize>,
}

impl Around for FinishCompression {
    async fn call(
        self: Rc<Self>,
        request: Request,
        mut inner: LocalService,
    ) -> Result<Response, BodyError> {
        let known = request.headers().get(IF_NONE_MATCH).cloned();
        let mut response = inner.call(request).await?;
        let decision = response
            .extensions_mut()
            .remove::<Decision>()
            .map_or(0, |decision| decision.0.load(Ordering::Relaxed));
        if decision == FULL {
            vary(response.headers_mut());
        }
        // RFC 9110, section 15.3.7: a partial response has the `Vary` that the complete response
        // would have for the same request.
        let is_part_of_meant = match response.status() {
            StatusCode::PARTIAL_CONTENT => self.options.mean_whole_of(response.headers()),
            // A 416 has no content type to check, like a 304; that the range does not exist holds
            // for the uncompressed representation.
            StatusCode::RANGE_NOT_SATISFIABLE => true,
            _ => false,
        };
        if is_part_of_meant {
            vary(response.headers_mut());
        }
        //= RFC 9110 section 15.4.5
        //# The server generating a 304 response MUST generate any of the following header fields that would have been sent in a 200 (OK)
        //# response to the same request
        if response.status() == StatusCode::NOT_MODIFIED {
            vary(response.headers_mut());
            weaken(response.headers_mut(), |weak| {
                known.is_some_and(|known| contains(known.as_bytes(), weak))
            });
        }
        if decision != TAKEN {
            return Ok(response);
        }
        let slot = Slot(self.slots.clone());
        if !response.headers().contains_key(CONTENT_ENCODING) {
            return Ok(response);
        }
        // The content differs for each coding, and compressing twice may give different bytes.
        weaken(response.headers_mut(), |_| true);
        Ok(response.map(|body| Body::stream(CompressedBody { body, _slot: slot })))
    }
}

fn vary(headers: &mut HeaderMap) {
    let name = ACCEPT_ENCODING.as_str().as_bytes();
    let mut names =
        headers.get_all(VARY).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    if !names.any(|one| one.trim_ascii().eq_ignore_ascii_case(name) || one.trim_ascii() == b"*") {
        headers.append(VARY, ACCEPT_ENCODING.into());
    }
}

/// Makes a strong entity tag weak if `wanted` accepts the weak tag.
fn weaken(headers: &mut HeaderMap, wanted: impl FnOnce(&[u8]) -> bool) {
    let Some(tag) = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/")) else {
        return;
    };
    let weak = [b"W/", tag.as_bytes()].concat();
    if wanted(&weak)
        && let Ok(weak) = HeaderValue::from_bytes(&weak)
    {
        headers.insert(ETAG, weak);
    }
}

fn contains(list: &[u8], tag: &[u8]) -> bool {
    list.windows(tag.len()).any(|part| part == tag)
}

/// A compression slot, freed on drop.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct CompressedBody {
    body: Body,
    _slot: Slot,
}

impl http_body::Body for CompressedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::super::LocalFuture;
    use super::paced::PIECE_BYTES;
    use super::*;

    fn of_type(content_type: &'static str, types: &[&str]) -> bool {
        let headers =
            [(CONTENT_TYPE, HeaderValue::from_static(content_type))].into_iter().collect();
        is_of_type(&headers, &types.iter().map(|&one| one.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_compressed_already_is_no_type_for_it() {
        for content_type in [
            "text/html; charset=utf-8",
            "TEXT/CSS",
            "application/ld+json",
            "image/svg+xml",
            "application/wasm",
        ] {
            assert!(of_type(content_type, &[]), "{content_type}");
        }
        for content_type in [
            "image/png",
            "video/mp4",
            "application/zip",
            "font/woff2",
            "text/event-stream",
            "application/octet-stream",
            "application/grpc-web+json",
        ] {
            assert!(!of_type(content_type, &[]), "{content_type}");
        }
        assert!(of_type("text/event-stream", &["text/event-stream"]));
        assert!(of_type("model/x", &["model/*"]));
        assert!(of_type("text/javascript", &["application/javascript"]));
        assert!(of_type("application/x-javascript", &["text/javascript"]));
        assert!(!of_type("text/css", &["application/javascript"]));
        assert!(!of_type("text/html", &["model/*"]));
    }

    #[test]
    fn vary_is_said_once() {
        for (there, lines) in [("accept", 2), ("Origin, Accept-Encoding", 1), ("*", 1)] {
            let mut headers: HeaderMap =
                [(VARY, HeaderValue::from_static(there))].into_iter().collect();
            vary(&mut headers);
            assert_eq!(headers.get_all(VARY).iter().count(), lines, "{there}");
        }
    }

    #[test]
    fn no_transform_is_obeyed() {
        let headers = |value| {
            [(CACHE_CONTROL, HeaderValue::from_static(value))].into_iter().collect::<HeaderMap>()
        };
        assert!(!may_be_changed(&headers("max-age=60, No-Transform")));
        assert!(may_be_changed(&headers("max-age=60")));
    }

    /// Zeros that are always ready, with the number of bytes read.
    struct Endless(Arc<AtomicUsize>);

    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.0.fetch_add(10_000, Ordering::Relaxed);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[0; 10_000])))))
        }
    }

    #[test]
    fn content_that_is_always_ready_is_compressed_by_the_piece() {
        for encoding in ["br", "zstd", "gzip"] {
            let (read, slots) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
            let body = Endless(read.clone());
            let mut response = http::Response::new(Body::stream(body));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            let response = std::cell::RefCell::new(Some(response));
            let inner = LocalService::around(Once(response), LocalService::new(Never));
            let layer = Compress { options: Arc::default(), slots: slots.clone() };
            let mut service = layer.on(inner);
            let mut request = Request::default();
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
            let mut cx = Context::from_waker(Waker::noop());
            let mut answer = pin!(service.answer(request));
            let Poll::Ready(answer) = answer.as_mut().poll(&mut cx) else {
                panic!("the body is always ready")
            };
            assert_eq!(answer.headers()[CONTENT_ENCODING], encoding);
            let mut body = answer.into_body();
            let mut before = 0;
            for _ in 0..100 {
                let _ = Pin::new(&mut body).poll_frame(&mut cx);
                let now = read.load(Ordering::Relaxed);
                assert!(now - before <= PIECE_BYTES + 10_000, "{encoding}: {}", now - before);
                before = now;
            }
            assert!(before > PIECE_BYTES, "{encoding}");
            assert_eq!(slots.load(Ordering::Relaxed), 1);
            drop(body);
            assert_eq!(slots.load(Ordering::Relaxed), 0);
        }
    }

    struct Once(std::cell::RefCell<Option<Response>>);

    impl Around for Once {
        async fn call(self: Rc<Self>, _: Request, _: LocalService) -> Result<Response, BodyError> {
            self.0.take().ok_or_else(|| "called twice".into())
        }
    }

    #[derive(Clone)]
    struct Never;

    impl Service<Request> for Never {
        type Response = Response;
        type Error = BodyError;
        type Future = LocalFuture;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request) -> LocalFuture {
            unreachable!("the service is not called")
        }
    }

    #[test]
    fn slots_are_limited_and_given_back() {
        let options = Options { concurrent: 1, min_size: Size(0), ..Options::default() };
        let compressible = Compressible { options: Arc::new(options), slots: Arc::default() };
        let response = || {
            let mut response = http::Response::new(Body::from("text"));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
            response.extensions_mut().insert(Decision::default());
            response
        };
        assert!(compressible.should_compress(&response()));
        let second = response();
        assert!(!compressible.should_compress(&second));
        assert_eq!(
            second
                .extensions()
                .get::<Decision>()
                .map(|decision| decision.0.load(Ordering::Relaxed)),
            Some(FULL)
        );
        drop(Slot(compressible.slots.clone()));
        assert!(compressible.should_compress(&response()));
    }
}
