//! `recording.json`, as it is written by `pronghorn-lab`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::Deserialize;

/// The name of the manifest in a recording's folder.
pub(crate) const MANIFEST: &str = "recording.json";
/// The only version of it that is understood.
const SCHEMA: u64 = 1;

/// Nobody waits longer for a page.
const LONGEST_THINK_TIME: Duration = Duration::from_secs(600);

/// Why a recording cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The manifest, or a body that it names, is not there or may not be read.
    #[error("{} cannot be read: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The manifest does not say what it has to.
    #[error("{} is not a recording: {reason}", path.display())]
    Malformed {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A body is not the one that was recorded.
    #[error("{} {reason}", path.display())]
    Body {
        /// The body's file.
        path: PathBuf,
        /// How it differs.
        reason: &'static str,
    },
}

#[derive(Deserialize)]
struct Schema {
    schema: u64,
}

#[derive(Deserialize)]
struct Manifest {
    url: String,
    entries: Vec<RawEntry>,
}

#[derive(Deserialize)]
struct RawEntry {
    method: String,
    url: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: Option<StoredBody>,
    encoded: Option<EncodedBody>,
    #[serde(rename = "thinkSeconds")]
    think_seconds: Option<f64>,
}

/// A file of the recording with content.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StoredBody {
    pub(crate) file: String,
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

#[derive(Deserialize)]
struct EncodedBody {
    coding: String,
    #[serde(flatten)]
    body: StoredBody,
}

/// What is recorded of one request.
pub(crate) struct Recorded {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<StoredBody>,
    pub(crate) encoded: Option<(HeaderValue, StoredBody)>,
    /// How long the recorded server took before it answered; zero where that is not known.
    pub(crate) think_time: Duration,
}

/// Reads the manifest in `folder`: the URL of the document, and the entries.
pub(crate) fn read(folder: &Path) -> Result<(String, Vec<Recorded>), RecordingError> {
    let path = folder.join(MANIFEST);
    let text = fs::read(&path).map_err(|source| RecordingError::File { path: path.clone(), source })?;
    let malformed = |reason: String| RecordingError::Malformed { path: path.clone(), reason };
    // First, because in another version anything may have another form.
    let Schema { schema } = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if schema != SCHEMA {
        return Err(malformed(format!("it is of schema {schema}, and only {SCHEMA} is understood")));
    }
    let Manifest { url, entries } = serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if entries.is_empty() {
        return Err(malformed("it has no entries".to_owned()));
    }
    let checked = entries
        .into_iter()
        .enumerate()
        .map(|(number, entry)| entry.check().map_err(|reason| malformed(format!("entries[{number}]: {reason}"))));
    Ok((url, checked.collect::<Result<_, _>>()?))
}

impl RawEntry {
    fn check(self) -> Result<Recorded, String> {
        let method = Method::from_bytes(self.method.as_bytes()).map_err(|_| format!("{:?} is no method", self.method))?;
        let url: Uri = self.url.parse().map_err(|error| format!("{:?} is no URL: {error}", self.url))?;
        if !matches!(url.scheme_str(), Some("http" | "https")) || url.host().is_none_or(str::is_empty) {
            return Err(format!("{:?} is no URL of http or https", self.url));
        }
        let status = StatusCode::from_u16(self.status).ok().filter(|status| (200..600).contains(&status.as_u16()));
        let status = status.ok_or_else(|| format!("{} is no status of a final response", self.status))?;
        let headers = self.headers.iter().map(|(name, value)| field(name, value)).collect::<Result<_, _>>()?;
        if self.encoded.is_some() && self.body.is_none() {
            return Err("it has `encoded` without `body`".to_owned());
        }
        let think_time = match self.think_seconds {
            None => Duration::ZERO,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|time| *time <= LONGEST_THINK_TIME)
                .ok_or_else(|| format!("`thinkSeconds` is {seconds}, which is no time of 0 to {} s", LONGEST_THINK_TIME.as_secs()))?,
        };
        let encoded = self.encoded.map(|EncodedBody { coding, body }| {
            HeaderValue::from_str(&coding).map(|name| (name, body)).map_err(|_| format!("{coding:?} is no content coding"))
        });
        Ok(Recorded { method, url, status, headers, body: self.body, encoded: encoded.transpose()?, think_time })
    }
}

fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let field_name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no name of a field"))?;
    let field_value = HeaderValue::from_bytes(value.trim().as_bytes()).map_err(|_| format!("{value:?} is no value of a field"))?;
    Ok((field_name, field_value))
}
