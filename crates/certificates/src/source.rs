//! Sources of PEM text.

use std::borrow::Cow;
use std::path::Path;

use rustls::pki_types::pem;

/// The source of a chain or a key in PEM form.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A file.
    File(&'a Path),
    /// PEM text in memory.
    Text(&'a [u8]),
}

impl<'a> Source<'a> {
    pub(crate) fn read(self) -> Result<Cow<'a, [u8]>, pem::Error> {
        match self {
            Self::File(path) => std::fs::read(path).map(Cow::from).map_err(pem::Error::Io),
            Self::Text(text) => Ok(text.into()),
        }
    }

    /// Returns the name for errors. `kind` names a source in memory.
    pub(crate) fn name(self, kind: &'a str) -> &'a Path {
        match self {
            Self::File(path) => path,
            Self::Text(_) => Path::new(kind),
        }
    }
}
