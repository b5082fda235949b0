//! Files of one folder.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use blocking::unblock;
use bytes::Bytes;
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED, LOCATION, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pronghorn_engine::{Body, Request, Responder, Response};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::access_log::AccessLog;
use crate::conditional::Validators;
use crate::file_body::{self, CHUNK_BYTES, FileBody};
use crate::path;
use crate::range::{self, Asked};

const INDEX: &[u8] = b"index.html";
/// How often a file is tried to be opened while others are renamed.
const OPEN_ATTEMPTS: usize = 16;

/// Serves the files below a folder: GET and HEAD, single ranges, conditional requests, `index.html` for folders.
///
/// No request reaches a file outside of the folder: paths are resolved by the kernel with the folder as their root, so that no
/// spelling and no symbolic link leads out of it. Links that stay inside are followed.
#[derive(Clone)]
pub struct StaticFiles {
    root: Arc<OwnedFd>,
    log: Option<Arc<AccessLog>>,
}

/// A file that can be served.
struct Found {
    file: OwnedFd,
    length: u64,
    validators: Validators,
    content_type: HeaderValue,
}

/// What a path turned out to be.
enum Lookup {
    File(Found),
    /// A folder that was named without its closing slash.
    Folder,
}

/// A response that may cross threads: made beside the disk, sent by the worker.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
}

enum Content {
    Bytes(Bytes),
    File(FileBody),
}

impl Answer {
    fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), content: Content::Bytes(Bytes::new()) }
    }

    fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

impl From<Answer> for Response {
    fn from(answer: Answer) -> Self {
        let body = match answer.content {
            Content::Bytes(bytes) => bytes.into(),
            Content::File(file) => Body::stream(file),
        };
        Self { status: answer.status, headers: answer.headers, body }
    }
}

impl StaticFiles {
    /// Serves the files below `root`.
    ///
    /// # Errors
    ///
    /// When `root` is not a folder or may not be opened.
    pub fn new(root: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // Opened for search only: without the right to search, every request would fail.
        rustix::fs::statat(&root, ".", rustix::fs::AtFlags::empty())?;
        Ok(Self { root: Arc::new(root), log: None })
    }

    /// The same with a line in `log` for each request.
    #[must_use]
    pub fn with_log(mut self, log: Arc<AccessLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Answers a request.
    pub fn serve(&self, request: Request, responder: Responder) {
        let logged = self.log.as_ref().map(|log| log.begin(&request));
        let finish = move |response| match logged {
            Some(logged) => logged.finish(response),
            None => response,
        };
        if request.method != Method::GET && request.method != Method::HEAD {
            let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            responder.send(finish(answer.with_header(ALLOW, HeaderValue::from_static("GET, HEAD")).into()));
            return;
        }
        let root = self.root.clone();
        let Request { method, uri, headers, .. } = request;
        responder.respond(async move { finish(unblock(move || answer(&root, &method, &uri, &headers)).await.into()) });
    }
}

impl pronghorn_engine::Handler for StaticFiles {
    fn handle(&self, request: Request, responder: Responder) {
        self.serve(request, responder);
    }
}

/// Blocks on the disk.
fn answer(root: &OwnedFd, method: &Method, uri: &http::Uri, headers: &HeaderMap) -> Answer {
    let Ok(mut path) = path::below(uri.path()) else { return text(StatusCode::BAD_REQUEST, "bad path\n") };
    let is_folder = uri.path().ends_with('/');
    if is_folder {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(INDEX);
    } else if path.is_empty() {
        // Dot segments that end at the root.
        return redirect_to_folder(uri);
    }
    match look_up(root, &path) {
        Ok(Lookup::File(found)) => respond(found, method, headers),
        Ok(Lookup::Folder) if is_folder => not_found(),
        Ok(Lookup::Folder) => redirect_to_folder(uri),
        Err(Errno::ACCESS | Errno::PERM) => text(StatusCode::FORBIDDEN, "forbidden\n"),
        // A link or a path that leads out of the folder is not told from one that leads nowhere.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO | Errno::INVAL) => not_found(),
        Err(Errno::AGAIN | Errno::MFILE | Errno::NFILE) => text(StatusCode::SERVICE_UNAVAILABLE, "try again\n"),
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read\n"),
    }
}

fn look_up(root: &OwnedFd, path: &[u8]) -> Result<Lookup, Errno> {
    // Without NONBLOCK, opening a FIFO would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
    // A rename somewhere can keep the kernel from proving that the path stays inside.
    let attempts = std::iter::repeat_with(open).take(OPEN_ATTEMPTS);
    let file = attempts.into_iter().find(|result| !matches!(result, Err(Errno::AGAIN))).unwrap_or(Err(Errno::AGAIN))?;
    let stat = rustix::fs::fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(Lookup::File(Found {
            length: u64::try_from(stat.st_size).unwrap_or(0),
            validators: validators(&stat),
            content_type: content_type(path),
            file,
        })),
        FileType::Directory => Ok(Lookup::Folder),
        _ => Err(Errno::NOENT),
    }
}

fn validators(stat: &Stat) -> Validators {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    // Two states of a file within one tick of the file system's clock nearly always differ in length.
    let etag = format!("\"{seconds:x}.{:x}-{:x}\"", stat.st_mtime_nsec, stat.st_size);
    Validators { etag, last_modified: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) }
}

fn content_type(path: &[u8]) -> HeaderValue {
    // Without a type, a browser looks into the content, and what looks like a page runs as one.
    let guess = mime_guess::from_path(OsStr::from_bytes(path)).first_raw().unwrap_or("application/octet-stream");
    if guess.starts_with("text/") { field(&format!("{guess}; charset=utf-8")) } else { HeaderValue::from_static(guess) }
}

fn respond(found: Found, method: &Method, request: &HeaderMap) -> Answer {
    let validators = &found.validators;
    if validators.precondition_failed(request) {
        return text(StatusCode::PRECONDITION_FAILED, "the file has changed\n");
    }
    if validators.not_modified(request) {
        let mut answer = Answer::new(StatusCode::NOT_MODIFIED);
        describe_state(&mut answer.headers, validators);
        return answer;
    }
    let asked = match request.get(RANGE).and_then(|field| field.to_str().ok()) {
        // RFC 9110, section 14.2: for any other method the field is to be ignored.
        Some(field) if method == Method::GET && validators.range_applies(request) => range::parse(field, found.length),
        _ => Asked::Whole,
    };
    let length = found.length;
    let (status, part) = match asked {
        Asked::Whole => (StatusCode::OK, 0..length),
        Asked::Part(part) => (StatusCode::PARTIAL_CONTENT, part),
        Asked::Unsatisfiable => {
            let answer = text(StatusCode::RANGE_NOT_SATISFIABLE, "no such range\n");
            return answer.with_header(CONTENT_RANGE, field(&format!("bytes */{length}")));
        }
    };
    let mut answer = Answer::new(status);
    describe_state(&mut answer.headers, validators);
    answer.headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    answer.headers.insert(CONTENT_TYPE, found.content_type);
    if status == StatusCode::PARTIAL_CONTENT {
        answer.headers.insert(CONTENT_RANGE, field(&format!("bytes {}-{}/{length}", part.start, part.end - 1)));
    }
    if part.end - part.start > CHUNK_BYTES as u64 {
        answer.content = Content::File(FileBody::new(found.file, part));
        return answer;
    }
    match file_body::read(&found.file, part) {
        Ok(bytes) => Answer { content: Content::Bytes(bytes), ..answer },
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "the file cannot be read\n"),
    }
}

fn describe_state(headers: &mut HeaderMap, validators: &Validators) {
    headers.insert(ETAG, field(&validators.etag));
    headers.insert(LAST_MODIFIED, field(&httpdate::fmt_http_date(validators.last_modified)));
}

fn redirect_to_folder(uri: &http::Uri) -> Answer {
    // Two slashes at the start would name another host.
    let path = format!("/{}/", uri.path().trim_matches('/'));
    let target = uri.query().map_or(path.clone(), |query| format!("{path}?{query}"));
    text(StatusCode::MOVED_PERMANENTLY, "moved\n").with_header(LOCATION, field(&target))
}

fn not_found() -> Answer {
    text(StatusCode::NOT_FOUND, "not found\n")
}

fn text(status: StatusCode, text: &'static str) -> Answer {
    let answer = Answer::new(status).with_header(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Answer { content: Content::Bytes(Bytes::from_static(text.as_bytes())), ..answer }
}

fn field(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("invariant: made of visible ASCII")
}
