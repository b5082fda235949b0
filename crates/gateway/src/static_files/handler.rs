//! Serving of files on one worker.

use std::cell::{Cell, RefCell};
use std::ops::{ControlFlow, Range};
use std::rc::Rc;
use std::sync::Arc;

use blocking::unblock;
use bytes::Bytes;
use http::header::{CONTENT_RANGE, VARY};
use http::{HeaderMap, Method, StatusCode, Uri};
use pronghorn_engine::{Body, Request, Responder, Response};
use rustix::io::Errno;

use super::errors::{answer_without_file, is_missing};
use super::files::StaticFiles;
use crate::responses::text;
use crate::server_requests;
use crate::static_files::file_body::{FileBody, OpenFile};
use crate::static_files::file_cache::{Entry, FileCache};
use crate::static_files::file_state::{FileState, Outcome, Variant};
use crate::static_files::listing;
use crate::static_files::requested_file::{FoundFile, RequestedFile, key};
use crate::static_files::root::{Content, Opened, Root, Wait, is_definite};

/// Serves [`StaticFiles`] on one worker.
///
/// Files in the page cache are served at once; for others, another thread waits for the disk. Small
/// files are cached here with their header fields: at most 16 MiB of them, each of at most 64 KiB.
/// Once per turn of the worker, and only when such a file is requested, the kernel is asked whether
/// the path still names the same unchanged file, so that a change takes effect in the next turn.
/// (The kernel updates a file's times late if a program changes it through shared memory, `mmap`;
/// such a change takes effect then.)
///
/// If the path of the folder contains a symbolic link, as in a deployment that switches one
/// atomically, the link is also checked once per turn. While it leads nowhere, every file is
/// missing, since workers may have seen different folders last.
///
/// Files on network file systems, and on other file systems than the folder's own, are always read
/// on other threads, because there even the check for changes can be slow.
pub struct FileHandler {
    files: Rc<RefCell<Rc<StaticFiles>>>,
    /// The worker's turn in which the links in the folder's path were last checked.
    looked_at: Cell<Option<u64>>,
    cache: Rc<RefCell<FileCache>>,
}

impl StaticFiles {
    /// Returns a handler for one worker.
    pub fn handler(&self) -> FileHandler {
        FileHandler {
            files: Rc::new(RefCell::new(Rc::new(self.clone()))),
            looked_at: Cell::new(None),
            cache: Rc::default(),
        }
    }
}

impl FileHandler {
    /// Answers a request.
    pub fn serve(&self, request: Request, responder: Responder) {
        let logged = self.files.borrow().log.as_ref().map(|log| log.begin(&request));
        let finish = move |response| match logged {
            Some(logged) => logged.finish(response),
            None => response,
        };
        match server_requests::answer(
            &request.method,
            &request.uri,
            request.upgrade.is_some(),
            "GET, HEAD",
        ) {
            Some(answer) => responder.send(finish(answer)),
            None => self.serve_as(request, responder, finish),
        }
    }

    /// Answers a request; `finish` changes the response before it is sent.
    pub(crate) fn serve_as(
        &self,
        request: Request,
        responder: Responder,
        finish: impl FnOnce(Response) -> Response + 'static,
    ) {
        let Request { method, uri, mut headers, .. } = request;
        let turn = responder.handle().turn();
        let (files, is_sure) = self.files(turn);
        let requested = match files.requested(&method, &uri, &headers) {
            ControlFlow::Continue(requested) => requested,
            ControlFlow::Break(answer) => return responder.send(finish(answer)),
        };
        if is_sure
            && let Some(mut answer) =
                self.answer_from_memory(&files, turn, &requested, &method, &uri, &headers)
        {
            if answer.headers.is_empty() {
                // The engine reuses the allocation after it has sent the response.
                headers.clear();
                answer.headers = headers;
            }
            return responder.send(finish(answer));
        }
        let answer = self.answer_from_disk(&files, requested.into_owned(), method, uri, headers);
        responder.respond(async move { finish(answer.await) });
    }

    /// Returns the response to a request that came through layers.
    pub(crate) async fn answer(
        &self,
        turn: u64,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    ) -> Response {
        let (files, is_sure) = self.files(turn);
        let requested = match files.requested(&method, &uri, &headers) {
            ControlFlow::Continue(requested) => requested,
            ControlFlow::Break(answer) => return answer,
        };
        if is_sure
            && let Some(answer) =
                self.answer_from_memory(&files, turn, &requested, &method, &uri, &headers)
        {
            return answer;
        }
        let requested = requested.into_owned();
        self.answer_from_disk(&files, requested, method, uri, headers).await
    }

    /// Returns the files for this turn, below another folder if a link in its path leads there now,
    /// and whether that is certain. It is not if the disk has to be checked, as when there is no
    /// folder now.
    fn files(&self, turn: u64) -> (Rc<StaticFiles>, bool) {
        let files = self.files.borrow().clone();
        if !files.root.path_may_change() || self.looked_at.get() == Some(turn) {
            return (files, true);
        }
        // If there is none now, the check on disk fails as well, and nothing else is served.
        let Ok(current_folder) = files.root.current_folder(Wait::CachedOnly) else {
            return (files, false);
        };
        files.log_found();
        self.looked_at.set(Some(turn));
        let Some(root) = current_folder else { return (files, true) };
        (move_to(root, &self.files, &self.cache), true)
    }

    fn answer_from_disk(
        &self,
        files: &StaticFiles,
        requested: RequestedFile<'static>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    ) -> impl Future<Output = Response> + use<> {
        let (files, cache, current) = (files.clone(), self.cache.clone(), self.files.clone());
        let codings: Vec<_> = files.codings(&headers).collect();
        async move {
            let listings = files.listings.clone().filter(|_| requested.is_folder);
            let _turn = match &listings {
                Some(listings) => listings.turn().await,
                None => None,
            };
            let found = unblock(move || match files.root.current_folder(Wait::Disk) {
                Ok(Some(root)) => {
                    files.log_found();
                    let files = StaticFiles { root: Arc::new(root), ..files };
                    (files.find(&requested, &codings), Some(files.root))
                }
                Ok(None) => {
                    files.log_found();
                    (files.find(&requested, &codings), None)
                }
                Err(error) => {
                    files.log_lost(error);
                    (Err(error), None)
                }
            });
            let (found, current_folder) = found.await;
            if let Some(root) = current_folder {
                move_to((*root).clone(), &current, &cache);
            }
            match found {
                Ok(FoundFile::File(opened, path, variant)) => {
                    keep_and_answer(&cache, None, &key(&path, variant), opened, &method, &headers)
                }
                Ok(FoundFile::Folder(page)) => listing::answer(page),
                Err(error) => answer_without_file(error, &uri),
            }
        }
    }

    /// Returns the response, unless the disk is needed.
    fn answer_from_memory(
        &self,
        files: &StaticFiles,
        turn: u64,
        requested: &RequestedFile<'_>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let mut number = 0;
        loop {
            let path = requested.candidate(files, number)?;
            if files.precompressed {
                for coding in files.codings(headers) {
                    let path = [&path, coding.suffix().as_bytes()].concat();
                    match self.file_from_memory(
                        files,
                        turn,
                        &path,
                        Variant::Coded(coding),
                        method,
                        headers,
                    ) {
                        Ok(answer) => return Some(answer),
                        Err(error) if is_definite(error) => {}
                        Err(_) => return None,
                    }
                }
            }
            match self.file_from_memory(files, turn, &path, files.plain(), method, headers) {
                Ok(answer) => return Some(answer),
                Err(error) if !is_definite(error) => return None,
                Err(error) => {
                    number += 1;
                    // A listing is always read from disk.
                    if !is_missing(error) {
                        files.tell(&path, error);
                    }
                    if !is_missing(error) || requested.candidate(files, number).is_none() {
                        let needs_disk =
                            files.listings.is_some() && requested.is_folder && is_missing(error);
                        return (!needs_disk).then(|| answer_without_file(error, uri));
                    }
                }
            }
        }
    }

    /// Returns the response with the file at `path`.
    ///
    /// # Errors
    ///
    /// Why the file cannot be served, if the error [is definite](is_definite); otherwise the disk
    /// is needed.
    fn file_from_memory(
        &self,
        files: &StaticFiles,
        turn: u64,
        path: &[u8],
        variant: Variant,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response, Errno> {
        let key = key(path, variant);
        if let Some(answer) = self.answer_from_cache(files, turn, path, &key, method, headers) {
            return Ok(answer);
        }
        match files.root.look_up(path, variant, Wait::CachedOnly) {
            Ok(opened) => {
                Ok(keep_and_answer(&self.cache, Some(turn), &key, opened, method, headers))
            }
            Err(error) => {
                if is_definite(error) {
                    self.cache.borrow_mut().remove(&key);
                }
                Err(error)
            }
        }
    }

    /// Returns the response if the cache has the current file. A changed file is removed from the
    /// cache.
    fn answer_from_cache(
        &self,
        files: &StaticFiles,
        turn: u64,
        path: &[u8],
        key: &[u8],
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let mut cache = self.cache.borrow_mut();
        let entry = cache.entry(key)?;
        if entry.checked != Some(turn) {
            if !entry.is_settled {
                return None;
            }
            match files.root.identify(path) {
                Ok(identity) if identity == entry.identity => entry.checked = Some(turn),
                // Unknown whether the file has changed.
                Err(error) if !is_definite(error) => return None,
                _ => {
                    cache.remove(key);
                    return None;
                }
            }
        }
        Some(entry.answer(method, headers))
    }
}

impl pronghorn_engine::Handler for FileHandler {
    fn handle(&self, request: Request, responder: Responder) {
        self.serve(request, responder);
    }
}

impl Entry {
    fn answer(&self, method: &Method, headers: &HeaderMap) -> Response {
        respond(&self.state, method, headers, Source::Memory(&self.content))
    }
}

/// Switches to another root.
fn move_to(
    root: Root,
    files: &RefCell<Rc<StaticFiles>>,
    cache: &RefCell<FileCache>,
) -> Rc<StaticFiles> {
    let current_folder =
        Rc::new(StaticFiles { root: Arc::new(root), ..(**files.borrow()).clone() });
    // Entries of the previous folder would otherwise be invalidated one by one.
    *cache.borrow_mut() = FileCache::default();
    *files.borrow_mut() = current_folder.clone();
    current_folder
}

/// Caches a small file and returns the response. `turn` is the worker's turn in which the file was
/// looked up, if it is the current one.
fn keep_and_answer(
    cache: &RefCell<FileCache>,
    turn: Option<u64>,
    path: &[u8],
    opened: Opened,
    method: &Method,
    headers: &HeaderMap,
) -> Response {
    let Opened { identity, is_settled, can_be_checked, state, content } = opened;
    match content {
        Content::Small(content) => {
            let entry = Entry { identity, is_settled, state, content, checked: turn };
            let answer = entry.answer(method, headers);
            if can_be_checked {
                cache.borrow_mut().insert(path, entry);
            }
            answer
        }
        Content::Large(file) => respond(&state, method, headers, Source::File(file)),
    }
}

/// Source of the content.
enum Source<'a> {
    Memory(&'a Bytes),
    File(OpenFile),
}

impl Source<'_> {
    /// Returns a function that makes bodies of parts.
    fn into_bodies(self) -> impl FnMut(Range<u64>) -> Body {
        let (memory, file) = match self {
            Self::Memory(content) => (Some(content.clone()), None),
            Self::File(file) => (None, Some(Arc::new(file))),
        };
        move |part| match (&memory, &file) {
            (Some(content), _) => content.slice(part.start as usize..part.end as usize).into(),
            (_, Some(file)) => Body::stream(FileBody::new(file.clone(), part)),
            (None, None) => Body::empty(),
        }
    }
}

fn respond(
    state: &FileState,
    method: &Method,
    headers: &HeaderMap,
    source: Source<'_>,
) -> Response {
    match state.answer(method, headers) {
        Outcome::Whole(fields) => Response::new(StatusCode::OK)
            .with_shared(fields)
            .with_body(source.into_bodies()(0..state.length())),
        Outcome::Part(headers, part) => {
            with_headers(StatusCode::PARTIAL_CONTENT, headers).with_body(source.into_bodies()(part))
        }
        Outcome::Parts(headers, multipart, parts) => {
            let body = multipart.body(parts, source.into_bodies());
            with_headers(StatusCode::PARTIAL_CONTENT, headers).with_body(Body::stream(body))
        }
        Outcome::NotModified(headers) => with_headers(StatusCode::NOT_MODIFIED, headers),
        Outcome::PreconditionFailed => {
            text(StatusCode::PRECONDITION_FAILED, "the file has changed\n")
        }
        Outcome::RangeNotSatisfiable(range) => {
            let answer = text(StatusCode::RANGE_NOT_SATISFIABLE, "range not satisfiable\n")
                .with_header(CONTENT_RANGE, range);
            // The length depends on the coding.
            match state.vary() {
                Some(vary) => answer.with_header(VARY, vary.clone()),
                None => answer,
            }
        }
    }
}

fn with_headers(status: StatusCode, headers: HeaderMap) -> Response {
    let mut response = Response::new(status);
    response.headers = headers;
    response
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fs::{self, File};
    use std::path::Path;

    use http_body::Body as _;
    use rustix::fs::Advice;

    use super::*;

    const FORGOTTEN_FILES: usize = 1000;

    struct Site {
        folder: tempfile::TempDir,
        handler: FileHandler,
    }

    impl Site {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let handler = StaticFiles::new(folder.path()).expect("a folder").handler();
            Self { folder, handler }
        }

        fn write(&self, name: &str, content: &[u8]) -> File {
            let path = self.folder.path().join(name);
            fs::write(&path, content).expect("write");
            File::open(path).expect("open")
        }

        /// Returns the status and the body's size, if the disk is not needed.
        fn ask(&self, turn: u64, path: &str) -> Option<(u16, Option<u64>)> {
            let uri = path.parse().expect("a target");
            let ControlFlow::Continue(file) =
                self.handler.files.borrow().requested(&Method::GET, &uri, &HeaderMap::new())
            else {
                panic!("{path} names no file")
            };
            let answer = self.handler.answer_from_memory(
                &self.handler.files.borrow(),
                turn,
                &file,
                &Method::GET,
                &uri,
                &HeaderMap::new(),
            )?;
            Some((answer.status.as_u16(), answer.body.size_hint().exact()))
        }

        /// Does the work of the pool and then of the worker.
        fn ask_the_disk(&self, path: &str) -> (u16, Option<u64>) {
            let name = &path.as_bytes()[1..];
            let answer =
                match self.handler.files.borrow().root.look_up(name, Variant::Only, Wait::Disk) {
                    Ok(opened) => keep_and_answer(
                        &self.handler.cache,
                        None,
                        name,
                        opened,
                        &Method::GET,
                        &HeaderMap::new(),
                    ),
                    Err(error) => answer_without_file(error, &path.parse().expect("a target")),
                };
            (answer.status.as_u16(), answer.body.size_hint().exact())
        }
    }

    #[test]
    fn file_is_checked_once_in_a_turn() {
        let site = Site::new();
        site.write("page.txt", b"old");
        site.ask_the_disk("/page.txt");
        // A file read from disk may be some turns old.
        site.write("page.txt", b"newer");
        let now = site.ask(1, "/page.txt").unwrap_or_else(|| site.ask_the_disk("/page.txt"));
        assert_eq!(now, (200, Some(5)));
        if site.ask(2, "/page.txt").is_none() {
            return eprintln!("skipped: this file system cannot say what is in memory");
        }
        fs::remove_file(site.folder.path().join("page.txt")).expect("delete");
        assert_eq!(site.ask(2, "/page.txt"), Some((200, Some(5))));
        // The kernel may need the disk to see that the name does not exist.
        assert_eq!(
            site.ask(3, "/page.txt").unwrap_or_else(|| site.ask_the_disk("/page.txt")),
            (404, Some(10))
        );
    }

    #[test]
    fn entry_that_may_have_changed_unseen_is_read_again() {
        let site = Site::new();
        site.write("page.txt", b"as it is");
        for (is_settled, length) in [(true, 3), (false, 8)] {
            let identity =
                site.handler.files.borrow().root.identify(b"page.txt").unwrap_or_default();
            let (state, content) = (FileState::of_length(3), "was".into());
            site.handler
                .cache
                .borrow_mut()
                .insert(b"page.txt", Entry { identity, is_settled, state, content, checked: None });
            let Some(answer) = site.ask(1, "/page.txt") else {
                return eprintln!("skipped: this file system cannot say what is in memory");
            };
            assert_eq!(answer, (200, Some(length)), "settled: {is_settled}");
        }
    }

    #[test]
    fn file_that_is_not_in_memory_is_left_to_the_disk() {
        let site = Site::new();
        if is_in_memory_only(site.folder.path()) {
            return eprintln!("skipped: this file system has no disk");
        }
        // The attempt makes the kernel read ahead, so that a fast disk is done before most
        // responses.
        let waits = (0..FORGOTTEN_FILES).find_map(|number| {
            let name = format!("/{number}.txt");
            let file = site.write(&name[1..], &vec![7; 60_000]);
            file.sync_all().expect("written");
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
            match site.ask(1, &name) {
                Some(answer) => {
                    assert_eq!(answer, (200, Some(60_000)));
                    None
                }
                None => Some(name),
            }
        });
        let name = waits.expect("a file that the worker does not wait for");
        assert_eq!(site.ask_the_disk(&name), (200, Some(60_000)));
    }

    fn is_in_memory_only(folder: &Path) -> bool {
        const TMPFS: u32 = 0x0102_1994;
        rustix::fs::statfs(folder).expect("a file system").f_type as u32 == TMPFS
    }

    #[test]
    fn folder_on_a_file_system_of_unknown_ways_is_left_to_the_disk() {
        let file = |path: &'static str| RequestedFile {
            path: Cow::Borrowed(path.as_bytes()),
            names: path.len(),
            is_folder: false,
        };
        let handler = StaticFiles::new(Path::new("/proc")).expect("a folder").handler();
        let uri = "/version".parse().expect("a target");
        for turn in 0..2 {
            assert!(
                handler
                    .answer_from_memory(
                        &handler.files.borrow(),
                        turn,
                        &file("version"),
                        &Method::GET,
                        &uri,
                        &HeaderMap::new()
                    )
                    .is_none()
            );
        }
        let root = StaticFiles::new(Path::new("/")).expect("a folder").handler();
        assert!(
            root.answer_from_memory(
                &root.files.borrow(),
                0,
                &file("proc/version"),
                &Method::GET,
                &uri,
                &HeaderMap::new()
            )
            .is_none(),
            "the folder is on another file system"
        );
    }
}
