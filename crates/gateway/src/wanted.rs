//! Which file a request is for.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use pronghorn_engine::Response;
use rustix::io::Errno;

use crate::coding::{self, Coding};
use crate::file_state::Variant;
use crate::path;
use crate::root::{Effort, Opened};
use crate::static_files::{StaticFiles, is_missing, not_found, redirect_to_folder, text};

/// What stands below a name that begins with a dot and is to be found by anybody (RFC 8615).
const WELL_KNOWN: &[u8] = b".well-known";

/// What is asked for, below the folder.
pub(crate) struct Wanted<'a> {
    pub(crate) path: Cow<'a, [u8]>,
    /// How much of the path can name files; where it is less than all, what is asked for is no file.
    pub(crate) names: usize,
    pub(crate) is_folder: bool,
}

/// What there is.
pub(crate) enum Found {
    File(Opened, Vec<u8>, Variant),
    Folder(Bytes),
}

impl Wanted<'_> {
    pub(crate) fn into_owned(self) -> Wanted<'static> {
        Wanted { path: Cow::Owned(self.path.into_owned()), ..self }
    }

    /// Whether there may be a file of this name.
    pub(crate) fn can_be_named(&self) -> bool {
        self.names == self.path.len()
    }

    /// The path of the file that is tried after so many others.
    pub(crate) fn candidate<'a>(&'a self, files: &'a StaticFiles, number: usize) -> Option<Cow<'a, [u8]>> {
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
    /// What is asked for, or the answer when that cannot be a file.
    pub(crate) fn wanted<'a>(&self, method: &Method, uri: &'a Uri, headers: &HeaderMap) -> ControlFlow<Response, Wanted<'a>> {
        if method != Method::GET && method != Method::HEAD {
            // gRPC clients read 404 as UNIMPLEMENTED, as from a server that lacks the service, and 405 as UNKNOWN, which says nothing.
            if is_grpc(headers) {
                return ControlFlow::Break(not_found());
            }
            let answer = text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            return ControlFlow::Break(answer.with_header(ALLOW, HeaderValue::from_static("GET, HEAD")));
        }
        let wanted = self.named(uri)?;
        if wanted.can_be_named() {
            return ControlFlow::Continue(wanted);
        }
        // The page of an application reads the address itself, whatever that is.
        match self.fallback {
            Some(_) => ControlFlow::Continue(Wanted { is_folder: false, ..wanted }),
            None => ControlFlow::Break(bad_path()),
        }
    }

    /// The same for any method, and for addresses that no file can have.
    pub(crate) fn named<'a>(&self, uri: &'a Uri) -> ControlFlow<Response, Wanted<'a>> {
        let Ok(path::Below { path, names }) = path::below(uri.path()) else { return ControlFlow::Break(bad_path()) };
        let is_folder = uri.path().ends_with('/');
        // Dot segments that end at the root name a folder.
        if !is_folder && path.is_empty() {
            return ControlFlow::Break(redirect_to_folder(uri));
        }
        // What is taken as it stands in the address has no name that begins with a dot.
        if !self.hidden && matches!(path, Cow::Owned(_)) && is_hidden(&path) {
            return ControlFlow::Break(not_found());
        }
        ControlFlow::Continue(Wanted { path, names, is_folder })
    }

    /// Codings in which the client takes files, where there may be such.
    pub(crate) fn codings(&self, headers: &HeaderMap) -> impl Iterator<Item = Coding> + use<> {
        self.precompressed.then(|| coding::accepted(headers)).into_iter().flatten()
    }

    pub(crate) fn plain(&self) -> Variant {
        if self.precompressed { Variant::Plain } else { Variant::Only }
    }

    /// Looks on the disk.
    pub(crate) fn find(&self, wanted: &Wanted<'_>, codings: &[Coding]) -> Result<Found, Errno> {
        let mut last = Errno::NOENT;
        for number in 0.. {
            let is_own = !wanted.is_folder || number < self.index.len();
            if let Some(listings) = self.listings.as_ref().filter(|_| wanted.is_folder && !is_own) {
                match listings.page(&self.root, &wanted.path, self.hidden) {
                    Err(error) if is_missing(error) => {}
                    page => {
                        return page.map(Found::Folder).inspect_err(|error| self.tell(&wanted.path, *error));
                    }
                }
            }
            let Some(path) = wanted.candidate(self, number) else { break };
            for coding in codings {
                let path = [&path, coding.suffix().as_bytes()].concat();
                let variant = Variant::Coded(*coding);
                if let Ok(opened) = self.root.look_up(&path, variant, Effort::Disk) {
                    return Ok(Found::File(opened, path, variant));
                }
            }
            match self.root.look_up(&path, self.plain(), Effort::Disk) {
                Ok(opened) => return Ok(Found::File(opened, path.into_owned(), self.plain())),
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
    text(StatusCode::BAD_REQUEST, "bad path\n")
}

/// Whether a request calls a method over gRPC, also as browsers send it (gRPC-Web).
fn is_grpc(headers: &HeaderMap) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    content_type.get(..TYPE.len()).is_some_and(|start| start.eq_ignore_ascii_case(TYPE))
}

/// Whether a name on the way begins with a dot.
pub(crate) fn is_hidden(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').enumerate();
    names.any(|(depth, name)| name.starts_with(b".") && !(depth == 0 && name == WELL_KNOWN))
}

/// Under what a file is kept: one that can be asked for by its own name too is another then. No name has a zero byte.
pub(crate) fn key(path: &[u8], variant: Variant) -> Cow<'_, [u8]> {
    match variant {
        Variant::Only | Variant::Plain => Cow::Borrowed(path),
        Variant::Coded(_) => Cow::Owned([path, b"\0"].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_dot_are_hidden_but_for_well_known_at_the_top() {
        for path in [".git/config", "a/.htaccess", "a/.well-known/x", ".well-known/.x", ".well-known2/x"] {
            assert!(is_hidden(path.as_bytes()), "{path}");
        }
        for path in [".well-known/acme-challenge/x", "a.b/c.d", "a"] {
            assert!(!is_hidden(path.as_bytes()), "{path}");
        }
    }
}
