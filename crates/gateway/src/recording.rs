//! Replay of a recorded page with all its hosts.

mod index;
mod manifest;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use blocking::unblock;
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS,
    ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ALT_SVC, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, DATE, ORIGIN, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::{Body, Request, Responder, Response, SharedFields};
use rustix::io::Errno;

use self::index::Index;
pub use self::manifest::RecordingError;
use self::manifest::{MANIFEST, Recorded, StoredBody};
use crate::access_log::AccessLog;
use crate::static_files::file_body::{self, FileBody};
use crate::static_files::file_state::Variant;
use crate::static_files::root::{Content, Opened, Root, Wait};

/// Number of bytes of a large body that are hashed at once.
const HASHED_BYTES: u64 = 1 << 20;

/// Fields that the server sets itself, that belong to the recorded connection, or that make
/// browsers send reports, and so requests that the page does not make.
const LEFT_OUT: [HeaderName; 15] = [
    ACCEPT_RANGES,
    ALT_SVC,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    DATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("report-to"),
    SERVER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];
const TIMING_ALLOW_ORIGIN: HeaderName = HeaderName::from_static("timing-allow-origin");

/// Serves a recording: each request gets the response recorded for its method, host, path and
/// query.
///
/// An unrecorded query gets the response of the nearest recorded one of the same path: the one with
/// the most parameters in common, then the most parameter names in common, then the fewest other
/// parameters, then the first. Small bodies are kept in memory, larger ones are streamed from their
/// files. All bodies are checked against their hashes when the recording is opened.
///
/// Each response allows every origin to read its timing, so that a page can measure the loading of
/// resources from other hosts.
#[derive(Clone)]
pub struct Recording {
    opened: Arc<OpenedRecording>,
    log: Option<Arc<AccessLog>>,
    think_times: bool,
}

struct OpenedRecording {
    root: Root,
    url: String,
    index: Index,
    entries: Vec<Entry>,
}

/// Serves a [`Recording`] on one worker.
pub struct RecordingHandler {
    recording: Recording,
}

struct Entry {
    status: StatusCode,
    think_time: Duration,
    plain: Representation,
    /// The encoded representation, with the name of its coding.
    encoded: Option<(HeaderValue, Representation)>,
}

struct Representation {
    fields: Arc<SharedFields>,
    content: Stored,
}

enum Stored {
    Memory(Bytes),
    File { path: Arc<[u8]>, size: u64 },
}

impl Recording {
    /// Opens the recording in `folder` and checks all its bodies.
    ///
    /// # Errors
    ///
    /// If the manifest or a body is missing, malformed, or differs from what was recorded.
    pub fn open(folder: &Path) -> Result<Self, RecordingError> {
        let (url, recorded) = manifest::read(folder)?;
        // Hidden names are safe here: only files that the manifest names are served.
        let root = Root::new(folder)
            .map_err(|source| RecordingError::File { path: folder.to_owned(), source })?
            .with_hidden();
        let mut index = Index::default();
        let mut entries = Vec::with_capacity(recorded.len());
        for (number, each) in recorded.into_iter().enumerate() {
            index.insert(number, &each.method, &each.url);
            entries.push(Entry::load(each, &root, folder)?);
        }
        Ok(Self {
            opened: Arc::new(OpenedRecording { root, url, index, entries }),
            log: None,
            think_times: false,
        })
    }

    /// Writes a line to `log` for each request.
    #[must_use]
    pub fn with_log(mut self, log: Arc<AccessLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Delays each response by the recorded server's think time, where the recording has one.
    #[must_use]
    pub fn with_think_times(mut self) -> Self {
        self.think_times = true;
        self
    }

    /// Returns the URL of the recorded document.
    pub fn url(&self) -> &str {
        &self.opened.url
    }

    /// Returns the recorded hosts, in alphabetical order.
    pub fn hosts(&self) -> Vec<&str> {
        self.opened.index.hosts()
    }

    /// Returns the number of recorded responses.
    pub fn responses(&self) -> usize {
        self.opened.entries.len()
    }

    /// Returns a handler for one worker.
    pub fn handler(&self) -> RecordingHandler {
        RecordingHandler { recording: self.clone() }
    }
}

impl RecordingHandler {
    /// Answers a request.
    pub fn serve(&self, request: Request, responder: Responder) {
        let Recording { opened, log, think_times } = &self.recording;
        let logged = log.as_ref().map(|log| log.begin(&request));
        let finish = move |response| match logged {
            Some(logged) => logged.finish(response),
            None => response,
        };
        let Request { method, uri, headers, .. } = request;
        let Some(number) = opened.index.find(&method, &uri) else {
            let answer = opened
                .leave(&method, &uri, &headers)
                .unwrap_or_else(|| opened.unknown(&method, &uri));
            return responder.send(finish(answer));
        };
        let entry = &opened.entries[number];
        let Representation { fields, content } = entry.choose(&headers);
        let response = Response::new(entry.status).with_shared(fields.clone());
        let thinking = Some(entry.think_time).filter(|time| *think_times && !time.is_zero());
        let thinking = thinking.map(|time| responder.handle().sleep(time));
        let (path, size) = match content {
            Stored::Memory(bytes) => {
                let response = response.with_body(bytes.clone());
                return match thinking {
                    None => responder.send(finish(response)),
                    Some(sleep) => responder.respond(async move {
                        sleep.await;
                        finish(response)
                    }),
                };
            }
            Stored::File { path, size } => (path, *size),
        };
        if thinking.is_none()
            && let Ok(file) = opened.root.look_up(path, Variant::Only, Wait::CachedOnly)
        {
            return responder.send(finish(with_content(response, file, size)));
        }
        let (opened, path) = (opened.clone(), path.clone());
        responder.respond(async move {
            if let Some(sleep) = thinking {
                sleep.await;
            }
            finish(
                match unblock(move || opened.root.look_up(&path, Variant::Only, Wait::Disk)).await {
                    Ok(file) => with_content(response, file, size),
                    Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => {
                        text(StatusCode::SERVICE_UNAVAILABLE, "try again\n".to_owned())
                    }
                    Err(_) => changed(),
                },
            )
        });
    }
}

impl pronghorn_engine::Handler for RecordingHandler {
    fn handle(&self, request: Request, responder: Responder) {
        self.serve(request, responder);
    }
}

impl OpenedRecording {
    /// Answers a CORS preflight for a recorded request. The preflight itself is not in every HAR
    /// file from which a recording may be made.
    fn leave(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let (origin, asked) = (headers.get(ORIGIN)?, headers.get(ACCESS_CONTROL_REQUEST_METHOD)?);
        let asked_method = Method::from_bytes(asked.as_bytes()).ok()?;
        self.index.find(&asked_method, uri).filter(|_| method == Method::OPTIONS)?;
        let mut answer = Response::new(StatusCode::NO_CONTENT)
            .with_header(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone())
            .with_header(ACCESS_CONTROL_ALLOW_METHODS, asked.clone())
            .with_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            answer = answer.with_header(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        Some(answer)
    }

    /// Returns a 404 that explains why there is no response.
    fn unknown(&self, method: &Method, uri: &Uri) -> Response {
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let host = uri.host().unwrap_or_default();
        let reason = if self.index.has_host(uri) {
            format!("the recording has no {method} {target} for {host}\n")
        } else {
            format!("the recording has no host {host}; it has {}\n", self.index.hosts().join(", "))
        };
        text(StatusCode::NOT_FOUND, reason)
    }
}

impl Entry {
    fn load(recorded: Recorded, root: &Root, folder: &Path) -> Result<Self, RecordingError> {
        let Recorded { status, mut headers, body, encoded, think_time, .. } = recorded;
        for name in LEFT_OUT {
            headers.remove(name);
        }
        headers.insert(TIMING_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        let plain = match body {
            Some(body) => Representation::load(headers.clone(), &body, root, folder)?,
            None => Representation {
                fields: Arc::new(SharedFields::new(headers.clone())),
                content: Stored::Memory(Bytes::new()),
            },
        };
        let encoded = encoded.map(|(coding, body)| {
            headers.insert(CONTENT_ENCODING, coding.clone());
            Representation::load(headers, &body, root, folder).map(|loaded| (coding, loaded))
        });
        Ok(Self { status, think_time, plain, encoded: encoded.transpose()? })
    }

    /// Returns the encoded representation if the client accepts its coding, otherwise the plain
    /// one.
    fn choose(&self, request: &HeaderMap) -> &Representation {
        match &self.encoded {
            Some((coding, encoded)) if accepts(request, coding) => encoded,
            _ => &self.plain,
        }
    }
}

impl Representation {
    fn load(
        mut headers: HeaderMap,
        body: &StoredBody,
        root: &Root,
        folder: &Path,
    ) -> Result<Self, RecordingError> {
        headers.insert(CONTENT_LENGTH, body.size.into());
        let content = load_body(body, root, folder)?;
        Ok(Self { fields: Arc::new(SharedFields::new(headers)), content })
    }
}

/// Reads a body and checks it against its size and hash.
fn load_body(body: &StoredBody, root: &Root, folder: &Path) -> Result<Stored, RecordingError> {
    let path = || folder.join(&body.file);
    let differs = |reason| RecordingError::Body { path: path(), reason };
    let opened = root.look_up(body.file.as_bytes(), Variant::Only, Wait::Disk).map_err(
        |error| match error {
            Errno::XDEV | Errno::LOOP => RecordingError::Malformed {
                path: folder.join(MANIFEST),
                reason: format!("the body {:?} is outside of the recording's folder", body.file),
            },
            error => RecordingError::File { path: path(), source: error.into() },
        },
    )?;
    let size = opened.state.length();
    if size != body.size {
        return Err(differs("size differs from the recording"));
    }
    let mut hash = Context::new(&SHA256);
    let stored = match opened.content {
        Content::Small(bytes) => {
            hash.update(&bytes);
            Stored::Memory(bytes)
        }
        Content::Large(file) => {
            let mut position = 0;
            while position < size {
                let part = position..size.min(position + HASHED_BYTES);
                position = part.end;
                let bytes = file_body::read(&file, part)
                    .map_err(|source| RecordingError::File { path: path(), source })?;
                hash.update(&bytes);
            }
            Stored::File { path: body.file.as_bytes().into(), size }
        }
    };
    if bytes_of(&body.sha256).as_deref() == Some(hash.finish().as_ref()) {
        Ok(stored)
    } else {
        Err(differs("content differs from the recording"))
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pairs =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok());
    pairs.collect()
}

/// Returns whether the client accepts a coding (RFC 9110, section 12.5.3). A request without the
/// field accepts anything, but such clients seldom support any coding; they get none.
fn accepts(request: &HeaderMap, coding: &HeaderValue) -> bool {
    let listed = request
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|field| field.to_str().ok())
        .flat_map(|field| field.split(','));
    let mut accepted = false;
    for item in listed {
        let (name, weight) =
            item.split_once(';').map_or((item, ""), |(name, weight)| (name, weight));
        let refused =
            weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok())
                == Some(0.0);
        if name.trim().as_bytes().eq_ignore_ascii_case(coding.as_bytes()) {
            return !refused;
        }
        accepted |= name.trim() == "*" && !refused;
    }
    accepted
}

fn with_content(response: Response, file: Opened, size: u64) -> Response {
    match file.content {
        Content::Large(content) if file.state.length() == size => {
            response.with_body(Body::stream(FileBody::new(content.into(), 0..size)))
        }
        _ => changed(),
    }
}

/// Returns a 500: a body was removed or changed in size since the recording was opened.
fn changed() -> Response {
    text(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the recording has changed since it was opened\n".to_owned(),
    )
}

fn text(status: StatusCode, text: String) -> Response {
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    Response::new(status)
        .with_header(CONTENT_TYPE, content_type)
        .with_header(TIMING_ALLOW_ORIGIN, HeaderValue::from_static("*"))
        .with_body(text)
}

#[cfg(test)]
mod tests;
