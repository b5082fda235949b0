//! Files of one folder.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use blocking::unblock;
use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, VARY};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::{Body, Request, Responder, Response};
use rustix::io::Errno;

use crate::access_log::AccessLog;
use crate::content_types::ContentTypes;
use crate::file_body::{FileBody, OpenFile};
use crate::file_cache::{Entry, FileCache};
use crate::file_state::{FileState, Outcome, Variant};
use crate::listing;
use crate::listings::Listings;
use crate::proxy::{Trouble, Troubles};
use crate::root::{Content, Effort, Opened, Root, is_definite};
use crate::wanted::{Found, Wanted, key};
use crate::whole_server;

const INDEX: &str = "index.html";

/// Serves the files below a folder: GET and HEAD, ranges, conditional requests, `index.html` for folders. What has a name that begins with
/// a dot is not there, but for `.well-known` at the top.
///
/// No request reaches a file outside of the folder: paths are resolved by the kernel with the folder as their root, so that no
/// spelling and no symbolic link leads out of it. Links that stay inside are followed, unless they lead to a name that begins with a dot;
/// others with [`StaticFiles::with_links_outside`].
///
/// Each worker serves through a [`FileHandler`] of its own.
#[derive(Clone)]
pub struct StaticFiles {
    pub(crate) root: Arc<Root>,
    log: Option<Arc<AccessLog>>,
    pub(crate) fallback: Option<Arc<[u8]>>,
    pub(crate) index: Arc<[String]>,
    pub(crate) precompressed: bool,
    pub(crate) listings: Option<Arc<Listings>>,
    pub(crate) hidden: bool,
    trouble: Option<Arc<Trouble>>,
}

/// Serves [`StaticFiles`] on one worker.
///
/// What the kernel has in memory is served at once; what has to come from the disk is waited for on another thread. Small files stay
/// here in memory, with the fields that describe them: 16 MiB of them at most, each of 64 KiB at most. In each turn of the worker in
/// which such a file is asked for, the kernel is asked whether the path still names it and nothing has changed, so that a change
/// shows in the next turn. (A program that changes a file through shared memory, `mmap`, changes its times when the kernel gets to
/// it; such a change shows then.)
///
/// Where a symbolic link stands on the way to the folder, as in a deployment that switches one atomically, it is looked at once a turn as well.
/// As long as it leads nowhere, every file is missing: each worker may have seen another folder last.
///
/// Files on network file systems, and on others than the folder itself is on, are always read on other threads, because there even
/// the question whether something has changed can take long.
pub struct FileHandler {
    files: Rc<RefCell<Rc<StaticFiles>>>,
    /// The worker's turn in which links on the way to the folder were last looked at.
    looked_at: Cell<Option<u64>>,
    cache: Rc<RefCell<FileCache>>,
}

impl StaticFiles {
    /// Serves the files below `root`.
    ///
    /// # Errors
    ///
    /// When `root` is not a folder or may not be opened.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(Root::new(root)?),
            log: None,
            fallback: None,
            index: [INDEX.to_owned()].into(),
            precompressed: false,
            listings: None,
            hidden: false,
            trouble: None,
        })
    }

    /// The same, calling `tell` with a line for a file that is there and cannot be read, which says why: ten lines at once and then one a
    /// second, which says how many were left out. It is called on workers and other threads, which it must not hold up; a line that it
    /// does not take (`false`) counts as left out. `name` is what the folder is called.
    #[must_use]
    pub fn on_trouble(self, name: &Path, tell: impl Fn(String) -> bool + Send + Sync + 'static) -> Self {
        let troubles = Troubles::default();
        troubles.set(Box::new(tell));
        self.with_trouble(troubles.of_folder(name))
    }

    /// The same, telling there of files that cannot be read.
    #[must_use]
    pub(crate) fn with_trouble(mut self, trouble: Arc<Trouble>) -> Self {
        self.trouble = Some(trouble);
        self
    }

    /// Tells why what `path` names cannot be read, unless it is only that it is not there.
    pub(crate) fn tell(&self, path: &[u8], error: Errno) {
        let status = status_without_file(error);
        if let Some(trouble) = &self.trouble
            && status != StatusCode::NOT_FOUND
            // A folder without its slash; a rename that keeps on.
            && !matches!(error, Errno::ISDIR | Errno::AGAIN)
        {
            trouble.unreadable(path, &error, status);
        }
    }

    /// The same with a line in `log` for each request.
    #[must_use]
    pub fn with_log(mut self, log: Arc<AccessLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// The same, with the file at `path` below the folder where there is none of the name that was asked for: the page of a single-page
    /// application, which reads the address itself.
    #[must_use]
    pub fn with_fallback(mut self, path: &str) -> Self {
        self.fallback = Some(path.as_bytes().into());
        self
    }

    /// The same with other files, the first that there is, for folders.
    #[must_use]
    pub fn with_index(mut self, names: &[String]) -> Self {
        self.index = names.into();
        self
    }

    /// The same, with files that have `.br`, `.zst` or `.gz` at the end of their names in place of those without it, for clients that take
    /// them.
    #[must_use]
    pub fn with_precompressed(mut self) -> Self {
        self.precompressed = true;
        self
    }

    /// The same, with a page of what is in it for a folder that has no index file.
    #[must_use]
    pub fn with_listing(mut self) -> Self {
        self.listings = Some(Arc::new(Listings::new()));
        self
    }

    /// The same with other content types, by the ends of names without the dot; what is not among them has the type that is known.
    #[must_use]
    pub fn with_types(mut self, types: impl IntoIterator<Item = (String, HeaderValue)>) -> Self {
        self.root = Arc::new(self.root.with_types(ContentTypes::new(types)));
        self
    }

    /// The same with what has a name that begins with a dot.
    #[must_use]
    pub fn with_hidden(mut self) -> Self {
        self.hidden = true;
        self.root = Arc::new(self.root.with_hidden());
        self
    }

    /// The same with symbolic links that lead out of the folder: whoever may make links in it decides what is served.
    #[must_use]
    pub fn with_links_outside(mut self) -> Self {
        self.root = Arc::new(self.root.with_links_outside());
        self
    }

    /// Tells once that the folder is not there any more.
    fn tell_lost(&self, error: Errno) {
        if let Some(trouble) = &self.trouble {
            trouble.lost(&error, status_without_file(error));
        }
    }

    /// The next time that it is not there is told again.
    fn tell_found(&self) {
        if let Some(trouble) = &self.trouble {
            trouble.found();
        }
    }

    /// A handler for one worker.
    pub fn handler(&self) -> FileHandler {
        FileHandler { files: Rc::new(RefCell::new(Rc::new(self.clone()))), looked_at: Cell::new(None), cache: Rc::default() }
    }

    /// The same, of the folder that was opened, whatever becomes of links on the way to it.
    #[must_use]
    pub(crate) fn staying(mut self) -> Self {
        self.root = Arc::new(self.root.staying());
        self
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
        match whole_server::answer(&request.method, &request.uri, request.upgrade.is_some(), "GET, HEAD") {
            Some(answer) => responder.send(finish(answer)),
            None => self.serve_as(request, responder, finish),
        }
    }

    /// Answers a request with what `finish` makes of the response.
    pub(crate) fn serve_as(&self, request: Request, responder: Responder, finish: impl FnOnce(Response) -> Response + 'static) {
        let Request { method, uri, mut headers, .. } = request;
        let turn = responder.handle().turn();
        let (files, is_sure) = self.files(turn);
        let wanted = match files.wanted(&method, &uri, &headers) {
            ControlFlow::Continue(wanted) => wanted,
            ControlFlow::Break(answer) => return responder.send(finish(answer)),
        };
        if is_sure && let Some(mut answer) = self.answer_from_memory(&files, turn, &wanted, &method, &uri, &headers) {
            if answer.headers.is_empty() {
                // The engine has a use for the memory when it has sent the answer.
                headers.clear();
                answer.headers = headers;
            }
            return responder.send(finish(answer));
        }
        let answer = self.answer_from_disk(&files, wanted.into_owned(), method, uri, headers);
        responder.respond(async move { finish(answer.await) });
    }

    /// The answer to a request that came through layers.
    pub(crate) async fn answer(&self, turn: u64, method: Method, uri: Uri, headers: HeaderMap) -> Response {
        let (files, is_sure) = self.files(turn);
        let wanted = match files.wanted(&method, &uri, &headers) {
            ControlFlow::Continue(wanted) => wanted,
            ControlFlow::Break(answer) => return answer,
        };
        if is_sure && let Some(answer) = self.answer_from_memory(&files, turn, &wanted, &method, &uri, &headers) {
            return answer;
        }
        let wanted = wanted.into_owned();
        self.answer_from_disk(&files, wanted, method, uri, headers).await
    }

    /// The files as they are in this turn: below another folder, when a link on the way to it leads there now. And whether that is sure, or has
    /// to be looked at on the disk, as where there is no folder now.
    fn files(&self, turn: u64) -> (Rc<StaticFiles>, bool) {
        let files = self.files.borrow().clone();
        if !files.root.may_move() || self.looked_at.get() == Some(turn) {
            return (files, true);
        }
        // Where there is none now, the disk says so as well, and nothing else is served.
        let Ok(moved) = files.root.moved(Effort::Memory) else { return (files, false) };
        files.tell_found();
        self.looked_at.set(Some(turn));
        let Some(root) = moved else { return (files, true) };
        (move_to(root, &self.files, &self.cache), true)
    }

    fn answer_from_disk(
        &self,
        files: &StaticFiles,
        wanted: Wanted<'static>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
    ) -> impl Future<Output = Response> + use<> {
        let (files, cache, current) = (files.clone(), self.cache.clone(), self.files.clone());
        let codings: Vec<_> = files.codings(&headers).collect();
        async move {
            let listings = files.listings.clone().filter(|_| wanted.is_folder);
            let _turn = match &listings {
                Some(listings) => listings.turn().await,
                None => None,
            };
            let found = unblock(move || match files.root.moved(Effort::Disk) {
                Ok(Some(root)) => {
                    files.tell_found();
                    let files = StaticFiles { root: Arc::new(root), ..files };
                    (files.find(&wanted, &codings), Some(files.root))
                }
                Ok(None) => {
                    files.tell_found();
                    (files.find(&wanted, &codings), None)
                }
                Err(error) => {
                    files.tell_lost(error);
                    (Err(error), None)
                }
            });
            let (found, moved) = found.await;
            if let Some(root) = moved {
                move_to((*root).clone(), &current, &cache);
            }
            match found {
                Ok(Found::File(opened, path, variant)) => keep_and_answer(&cache, None, &key(&path, variant), opened, &method, &headers),
                Ok(Found::Folder(page)) => listing::answer(page),
                Err(error) => answer_without_file(error, &uri),
            }
        }
    }

    /// The answer, unless the disk is needed for it.
    fn answer_from_memory(
        &self,
        files: &StaticFiles,
        turn: u64,
        wanted: &Wanted<'_>,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<Response> {
        let mut number = 0;
        loop {
            let path = wanted.candidate(files, number)?;
            if files.precompressed {
                for coding in files.codings(headers) {
                    let path = [&path, coding.suffix().as_bytes()].concat();
                    match self.file_from_memory(files, turn, &path, Variant::Coded(coding), method, headers) {
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
                    // A page of what is in a folder has to be read from the disk.
                    if !is_missing(error) {
                        files.tell(&path, error);
                    }
                    if !is_missing(error) || wanted.candidate(files, number).is_none() {
                        let needs_disk = files.listings.is_some() && wanted.is_folder && is_missing(error);
                        return (!needs_disk).then(|| answer_without_file(error, uri));
                    }
                }
            }
        }
    }

    /// The answer with the file at `path`.
    ///
    /// # Errors
    ///
    /// What keeps it from being served, if that [is definite](is_definite); otherwise the disk is needed for it.
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
        match files.root.look_up(path, variant, Effort::Memory) {
            Ok(opened) => Ok(keep_and_answer(&self.cache, Some(turn), &key, opened, method, headers)),
            Err(error) => {
                if is_definite(error) {
                    self.cache.borrow_mut().remove(&key);
                }
                Err(error)
            }
        }
    }

    /// The answer if the file is in the cache as it is now. What has changed leaves the cache.
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
                // Whether it has changed is not known yet.
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

/// From now on files are below `root`.
fn move_to(root: Root, files: &RefCell<Rc<StaticFiles>>, cache: &RefCell<FileCache>) -> Rc<StaticFiles> {
    let moved = Rc::new(StaticFiles { root: Arc::new(root), ..(**files.borrow()).clone() });
    // Entries of the other folder would be found to be changed one by one.
    *cache.borrow_mut() = FileCache::default();
    *files.borrow_mut() = moved.clone();
    moved
}

/// `turn` is the worker's turn in which the file was looked up, if it is the current one.
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

/// Where content is.
enum Source<'a> {
    Memory(&'a Bytes),
    File(OpenFile),
}

impl Source<'_> {
    /// Makes bodies of parts of it.
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

fn respond(state: &FileState, method: &Method, headers: &HeaderMap, source: Source<'_>) -> Response {
    match state.answer(method, headers) {
        Outcome::Whole(fields) => Response::new(StatusCode::OK).with_shared(fields).with_body(source.into_bodies()(0..state.length())),
        Outcome::Part(headers, part) => with_headers(StatusCode::PARTIAL_CONTENT, headers).with_body(source.into_bodies()(part)),
        Outcome::Parts(headers, multipart, parts) => {
            let body = multipart.body(parts, source.into_bodies());
            with_headers(StatusCode::PARTIAL_CONTENT, headers).with_body(Body::stream(body))
        }
        Outcome::NotModified(headers) => with_headers(StatusCode::NOT_MODIFIED, headers),
        Outcome::PreconditionFailed => text(StatusCode::PRECONDITION_FAILED, "the file has changed\n"),
        Outcome::RangeNotSatisfiable(range) => {
            let answer = text(StatusCode::RANGE_NOT_SATISFIABLE, "no such range\n").with_header(CONTENT_RANGE, range);
            // Each coding has a length of its own.
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

/// There is no file of that name.
pub(crate) fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}

pub(crate) fn answer_without_file(error: Errno, uri: &Uri) -> Response {
    match error {
        Errno::ISDIR if uri.path().ends_with('/') => not_found(),
        Errno::ISDIR => redirect_to_folder(uri),
        _ => match status_without_file(error) {
            StatusCode::FORBIDDEN => text(StatusCode::FORBIDDEN, "forbidden\n"),
            StatusCode::NOT_FOUND => not_found(),
            StatusCode::SERVICE_UNAVAILABLE => text(StatusCode::SERVICE_UNAVAILABLE, "try again\n"),
            status => text(status, "the file cannot be read\n"),
        },
    }
}

fn status_without_file(error: Errno) -> StatusCode {
    match error {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        // A link or a path that leads out of the folder is not told from one that leads nowhere.
        Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP | Errno::NAMETOOLONG | Errno::NXIO | Errno::INVAL => StatusCode::NOT_FOUND,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Relative to the address as the client has it, of which a part may have been taken away on the way here.
pub(crate) fn redirect_to_folder(uri: &Uri) -> Response {
    // A backslash is a slash to browsers.
    let name = uri.path().rsplit('/').next().unwrap_or_default().replace('\\', "%5C");
    // Without the dot, what stands before a colon would be a scheme, and what two slashes of any kind stand before a host.
    let target = uri.query().map_or_else(|| format!("./{name}/"), |query| format!("./{name}/?{query}"));
    let target = HeaderValue::from_str(&target).expect("invariant: a target is visible ASCII");
    text(StatusCode::MOVED_PERMANENTLY, "moved\n").with_header(LOCATION, target)
}

pub(crate) fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "not found\n")
}

pub(crate) fn text(status: StatusCode, text: &'static str) -> Response {
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    Response::new(status).with_header(CONTENT_TYPE, content_type).with_body(text)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::fs::{self, File};

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

        /// The status and the content's size, if the answer needs no disk.
        fn ask(&self, turn: u64, path: &str) -> Option<(u16, Option<u64>)> {
            let uri = path.parse().expect("a target");
            let ControlFlow::Continue(file) = self.handler.files.borrow().wanted(&Method::GET, &uri, &HeaderMap::new()) else {
                panic!("{path} names no file")
            };
            let answer =
                self.handler.answer_from_memory(&self.handler.files.borrow(), turn, &file, &Method::GET, &uri, &HeaderMap::new())?;
            Some((answer.status.as_u16(), answer.body.size_hint().exact()))
        }

        /// As the pool does it, and the worker after it.
        fn ask_the_disk(&self, path: &str) -> (u16, Option<u64>) {
            let name = &path.as_bytes()[1..];
            let answer = match self.handler.files.borrow().root.look_up(name, Variant::Only, Effort::Disk) {
                Ok(opened) => keep_and_answer(&self.handler.cache, None, name, opened, &Method::GET, &HeaderMap::new()),
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
        // What comes from the disk was true some turns ago.
        site.write("page.txt", b"newer");
        let now = site.ask(1, "/page.txt").unwrap_or_else(|| site.ask_the_disk("/page.txt"));
        assert_eq!(now, (200, Some(5)));
        if site.ask(2, "/page.txt").is_none() {
            return eprintln!("skipped: this file system cannot say what is in memory");
        }
        fs::remove_file(site.folder.path().join("page.txt")).expect("delete");
        assert_eq!(site.ask(2, "/page.txt"), Some((200, Some(5))));
        // The kernel may have to look at the disk to see that there is none of that name.
        assert_eq!(site.ask(3, "/page.txt").unwrap_or_else(|| site.ask_the_disk("/page.txt")), (404, Some(10)));
    }

    #[test]
    fn entry_that_may_have_changed_unseen_is_read_again() {
        let site = Site::new();
        site.write("page.txt", b"as it is");
        for (is_settled, length) in [(true, 3), (false, 8)] {
            let identity = site.handler.files.borrow().root.identify(b"page.txt").unwrap_or_default();
            let (state, content) = (FileState::of_length(3), "was".into());
            site.handler.cache.borrow_mut().insert(b"page.txt", Entry { identity, is_settled, state, content, checked: None });
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
        // Being asked makes the kernel read ahead, so that a quick disk is done before the answer to most of them.
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
        let file = |path: &'static str| Wanted { path: Cow::Borrowed(path.as_bytes()), names: path.len(), is_folder: false };
        let handler = StaticFiles::new(Path::new("/proc")).expect("a folder").handler();
        let uri = "/version".parse().expect("a target");
        for turn in 0..2 {
            assert!(
                handler
                    .answer_from_memory(&handler.files.borrow(), turn, &file("version"), &Method::GET, &uri, &HeaderMap::new())
                    .is_none()
            );
        }
        let root = StaticFiles::new(Path::new("/")).expect("a folder").handler();
        assert!(
            root.answer_from_memory(&root.files.borrow(), 0, &file("proc/version"), &Method::GET, &uri, &HeaderMap::new()).is_none(),
            "it is mounted elsewhere"
        );
    }
}
