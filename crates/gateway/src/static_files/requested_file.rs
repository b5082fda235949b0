//! Mapping of requests to files.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::Response;
use rustix::io::Errno;

use crate::responses::{not_found, redirect_to_folder, text};
use crate::static_files::StaticFiles;
use crate::static_files::coding::{self, Coding};
use crate::static_files::errors::is_missing;
use crate::static_files::file_state::Variant;
use crate::static_files::path::{self, is_hidden};
use crate::static_files::root::{Opened, Wait};

/// The requested path below the folder.
pub(crate) struct RequestedFile<'a> {
    pub(crate) path: Cow<'a, [u8]>,
    /// Length of the prefix that can name files; if it is less than the whole, the request is not
    /// for a file.
    pub(crate) names: usize,
    pub(crate) is_folder: bool,
}

/// What was found.
pub(crate) enum FoundFile {
    File(Opened, Vec<u8>, Variant),
    Folder(Bytes),
}

impl RequestedFile<'_> {
    pub(crate) fn into_owned(self) -> RequestedFile<'static> {
        RequestedFile { path: Cow::Owned(self.path.into_owned()), ..self }
    }

    /// Returns whether a file can have this name.
    pub(crate) fn can_be_named(&self) -> bool {
        self.names == self.path.len()
    }

    /// Returns the path of the candidate with this number: the file, or the index files of a
    /// folder, and then the fallback.
    pub(crate) fn candidate<'a>(
        &'a self,
        files: &'a StaticFiles,
        number: usize,
    ) -> Option<Cow<'a, [u8]>> {
        let own = match self.is_folder {
            _ if !self.can_be_named() => 0,
            true => files.index.len(),
            false => 1,
        };
        match number {
            _ if number == own => files.fallback.as_deref().map(Cow::Borrowed),
            _ if number > own => None,
            _ if !self.is_folder => Some(Cow::Borrowed(&*self.path)),
            _ => {
                let slash: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
                Some(Cow::Owned([&self.path, slash, files.index[number].as_bytes()].concat()))
            }
        }
    }
}

impl StaticFiles {
    /// Returns the requested path, or a response if the request cannot be for a file.
    pub(crate) fn requested<'a>(
        &self,
        method: &Method,
        uri: &'a Uri,
        headers: &HeaderMap,
    ) -> ControlFlow<Response, RequestedFile<'a>> {
        if method != Method::GET && method != Method::HEAD {
            // gRPC clients read 404 as UNIMPLEMENTED, as from a server that lacks the service, and
            // 405 as UNKNOWN, which says nothing.
            if is_grpc(headers) {
                return ControlFlow::Break(not_found());
            }
            let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            return ControlFlow::Break(
                answer.with_header(ALLOW, HeaderValue::from_static("GET, HEAD")),
            );
        }
        let requested = self.named(uri)?;
        if requested.can_be_named() {
            return ControlFlow::Continue(requested);
        }
        // A single-page application interprets any path itself.
        match self.fallback {
            Some(_) => ControlFlow::Continue(RequestedFile { is_folder: false, ..requested }),
            None => ControlFlow::Break(bad_path()),
        }
    }

    /// Returns the requested path, for any method and also for paths that no file can have.
    pub(crate) fn named<'a>(&self, uri: &'a Uri) -> ControlFlow<Response, RequestedFile<'a>> {
        let Ok(path::Below { path, names }) = path::below(uri.path()) else {
            return ControlFlow::Break(bad_path());
        };
        let is_folder = uri.path().ends_with('/');
        // Dot segments that end at the root name a folder.
        if !is_folder && path.is_empty() {
            return ControlFlow::Break(redirect_to_folder(uri));
        }
        // A borrowed path took the fast path, so it has no name that starts with a dot.
        if !self.hidden && matches!(path, Cow::Owned(_)) && is_hidden(&path) {
            return ControlFlow::Break(not_found());
        }
        ControlFlow::Continue(RequestedFile { path, names, is_folder })
    }

    /// Returns the codings to try for the client, if precompressed files are enabled.
    pub(crate) fn codings(&self, headers: &HeaderMap) -> impl Iterator<Item = Coding> + use<> {
        self.precompressed.then(|| coding::accepted(headers)).into_iter().flatten()
    }

    pub(crate) fn plain(&self) -> Variant {
        if self.precompressed { Variant::Plain } else { Variant::Only }
    }

    /// Finds the file on disk.
    pub(crate) fn find(
        &self,
        requested: &RequestedFile<'_>,
        codings: &[Coding],
    ) -> Result<FoundFile, Errno> {
        let mut last = Errno::NOENT;
        for number in 0.. {
            let is_own = !requested.is_folder || number < self.index.len();
            if let Some(listings) =
                self.listings.as_ref().filter(|_| requested.is_folder && !is_own)
            {
                match listings.page(&self.root, &requested.path, self.hidden) {
                    Err(error) if is_missing(error) => {}
                    page => {
                        return page
                            .map(FoundFile::Folder)
                            .inspect_err(|error| self.tell(&requested.path, *error));
                    }
                }
            }
            let Some(path) = requested.candidate(self, number) else { break };
            for coding in codings {
                let path = [&path, coding.suffix().as_bytes()].concat();
                let variant = Variant::Coded(*coding);
                if let Ok(opened) = self.root.look_up(&path, variant, Wait::Disk) {
                    return Ok(FoundFile::File(opened, path, variant));
                }
            }
            match self.root.look_up(&path, self.plain(), Wait::Disk) {
                Ok(opened) => return Ok(FoundFile::File(opened, path.into_owned(), self.plain())),
                Err(error) if is_missing(error) => last = error,
                Err(error) => {
                    self.tell(&path, error);
                    return Err(error);
                }
            }
        }
        Err(last)
    }
}

fn bad_path() -> Response {
    text(StatusCode::BAD_REQUEST, "invalid path\n")
}

/// Returns whether a request is a gRPC or gRPC-Web call.
fn is_grpc(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    content_type.get(..TYPE.len()).is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// Returns the cache key of a file. A precompressed file that is requested by its own name has
/// another key; no name contains a NUL byte.
pub(crate) fn key(path: &[u8], variant: Variant) -> Cow<'_, [u8]> {
    match variant {
        Variant::Only | Variant::Plain => Cow::Borrowed(path),
        Variant::Coded(_) => Cow::Owned([path, b"\0"].concat()),
    }
}
