//! The files of a folder, and how they are served.

use std::io;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use rustix::io::Errno;

use super::errors::status_without_file;
use crate::access_log::AccessLog;
use crate::proxy::{FailureLog, FailureLogs};
use crate::static_files::content_types::ContentTypes;
use crate::static_files::listings::Listings;
use crate::static_files::root::Root;

const INDEX: &str = "index.html";

/// Serves the files below a folder: GET and HEAD, ranges, conditional requests, `index.html` for
/// folders. Names that start with a dot are not served, except for `.well-known` at the top.
///
/// No request reaches a file outside of the folder: the kernel resolves paths with the folder as
/// their root, so that neither a spelling nor a symbolic link leads out of it. Links that stay
/// inside are followed, unless they lead to a name that starts with a dot; with
/// [`StaticFiles::with_links_outside`] other links are followed, too.
///
/// Each worker uses its own [`FileHandler`](crate::FileHandler).
#[derive(Clone)]
pub struct StaticFiles {
    pub(crate) root: Arc<Root>,
    pub(super) log: Option<Arc<AccessLog>>,
    pub(crate) fallback: Option<Arc<[u8]>>,
    pub(crate) index: Arc<[String]>,
    pub(crate) precompressed: bool,
    pub(crate) listings: Option<Arc<Listings>>,
    pub(crate) hidden: bool,
    pub(super) failures: Option<Arc<FailureLog>>,
}

impl StaticFiles {
    /// Serves the files below `root`.
    ///
    /// # Errors
    ///
    /// If `root` is not a folder or cannot be opened.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            root: Arc::new(Root::new(root)?),
            log: None,
            fallback: None,
            index: [INDEX.to_owned()].into(),
            precompressed: false,
            listings: None,
            hidden: false,
            failures: None,
        })
    }

    /// Calls `tell` with a log line for each file that exists but cannot be read, with the reason:
    /// a burst of ten lines and then one line a second, which includes the number of suppressed
    /// lines. `tell` is called on workers and other threads and must not block; a line for which it
    /// returns `false` counts as suppressed. `name` is the name of the folder in the lines.
    #[must_use]
    pub fn on_read_error(
        self,
        name: &Path,
        tell: impl Fn(String) -> bool + Send + Sync + 'static,
    ) -> Self {
        let failure_logs = FailureLogs::default();
        failure_logs.set(Box::new(tell));
        self.with_failure_log(failure_logs.of_folder(name))
    }

    /// Logs files that cannot be read to `failures`.
    #[must_use]
    pub(crate) fn with_failure_log(mut self, failures: Arc<FailureLog>) -> Self {
        self.failures = Some(failures);
        self
    }

    /// Logs why `path` cannot be read, unless it is just missing.
    pub(crate) fn tell(&self, path: &[u8], error: Errno) {
        let status = status_without_file(error);
        if let Some(failures) = &self.failures
            && status != StatusCode::NOT_FOUND
            // A folder without its trailing slash; a concurrent rename.
            && !matches!(error, Errno::ISDIR | Errno::AGAIN)
        {
            failures.unreadable(path, &error, status);
        }
    }

    /// Writes a line to `log` for each request.
    #[must_use]
    pub fn with_log(mut self, log: Arc<AccessLog>) -> Self {
        self.log = Some(log);
        self
    }

    /// Serves the file at `path` below the folder if the requested file is missing: the page of a
    /// single-page application, which routes in the browser.
    #[must_use]
    pub fn with_fallback(mut self, path: &str) -> Self {
        self.fallback = Some(path.as_bytes().into());
        self
    }

    /// Sets the names of index files; the first existing one is served for a folder.
    #[must_use]
    pub fn with_index(mut self, names: &[String]) -> Self {
        self.index = names.into();
        self
    }

    /// Serves precompressed files, with the suffix `.br`, `.zst` or `.gz`, to clients that accept
    /// the coding.
    #[must_use]
    pub fn with_precompressed(mut self) -> Self {
        self.precompressed = true;
        self
    }

    /// Serves a listing for a folder without an index file.
    #[must_use]
    pub fn with_listing(mut self) -> Self {
        self.listings = Some(Arc::new(Listings::new()));
        self
    }

    /// Sets content types by extension, without the dot. Other extensions keep their known types.
    #[must_use]
    pub fn with_types(mut self, types: impl IntoIterator<Item = (String, HeaderValue)>) -> Self {
        self.root = Arc::new(self.root.with_types(ContentTypes::new(types)));
        self
    }

    /// Serves names that start with a dot, too.
    #[must_use]
    pub fn with_hidden(mut self) -> Self {
        self.hidden = true;
        self.root = Arc::new(self.root.with_hidden());
        self
    }

    /// Follows symbolic links that lead out of the folder: users who can create links in it decide
    /// what is served.
    #[must_use]
    pub fn with_links_outside(mut self) -> Self {
        self.root = Arc::new(self.root.with_links_outside());
        self
    }

    /// Logs once that the folder is missing.
    pub(super) fn log_lost(&self, error: Errno) {
        if let Some(failures) = &self.failures {
            failures.folder_lost(&error, status_without_file(error));
        }
    }

    /// Notes that the folder exists, so that its next loss is logged again.
    pub(super) fn log_found(&self) {
        if let Some(failures) = &self.failures {
            failures.folder_found();
        }
    }

    /// Keeps serving the opened folder, even if links in its path change.
    #[must_use]
    pub(crate) fn pinned(mut self) -> Self {
        self.root = Arc::new(self.root.pinned());
        self
    }
}
