//! Parsing of `recording.json`, which `pronghorn-lab` writes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::Deserialize;

/// File name of the manifest in a recording's folder.
pub(crate) const MANIFEST: &str = "recording.json";
/// The supported version of the schema.
const SCHEMA: u64 = 1;

/// Maximum think time.
const LONGEST_THINK_TIME: Duration = Duration::from_secs(600);

/// Why a recording cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The manifest or a body is missing or unreadable.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The manifest is malformed.
    #[error("invalid recording {}: {reason}", path.display())]
    Malformed {
        /// The manifest.
        path: PathBuf,
        /// What is malformed.
        reason: String,
    },
    /// A body differs from what was recorded.
    #[error("{}: {reason}", path.display())]
    Body {
        /// The body's file.
        path: PathBuf,
        /// How the body differs.
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

/// A body's file, size and hash.
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

/// A recorded request and its response.
pub(crate) struct Recorded {
    pub(crate) method: Method,
    pub(crate) url: Uri,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<StoredBody>,
    pub(crate) encoded: Option<(HeaderValue, StoredBody)>,
    /// How long the recorded server took to respond; zero if unknown.
    pub(crate) think_time: Duration,
}

/// Reads the manifest in `folder` and returns the URL of the document and the entries.
pub(crate) fn read(folder: &Path) -> Result<(String, Vec<Recorded>), RecordingError> {
    let path = folder.join(MANIFEST);
    let text =
        fs::read(&path).map_err(|source| RecordingError::File { path: path.clone(), source })?;
    let malformed = |reason: String| RecordingError::Malformed { path: path.clone(), reason };
    // Checked first, since another version may differ in any other part.
    let Schema { schema } =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if schema != SCHEMA {
        return Err(malformed(format!("unsupported schema {schema}: expected {SCHEMA}")));
    }
    let Manifest { url, entries } =
        serde_json::from_slice(&text).map_err(|error| malformed(error.to_string()))?;
    if entries.is_empty() {
        return Err(malformed("no entries".to_owned()));
    }
    let checked = entries.into_iter().enumerate().map(|(number, entry)| {
        entry.check().map_err(|reason| malformed(format!("entries[{number}]: {reason}")))
    });
    Ok((url, checked.collect::<Result<_, _>>()?))
}

impl RawEntry {
    fn check(self) -> Result<Recorded, String> {
        let method = Method::from_bytes(self.method.as_bytes())
            .map_err(|_| format!("invalid method {:?}", self.method))?;
        let url: Uri =
            self.url.parse().map_err(|error| format!("invalid URL {:?}: {error}", self.url))?;
        if !matches!(url.scheme_str(), Some("http" | "https"))
            || url.host().is_none_or(str::is_empty)
        {
            return Err(format!("invalid URL {:?}: expected http or https", self.url));
        }
        let status = StatusCode::from_u16(self.status)
            .ok()
            .filter(|status| (200..600).contains(&status.as_u16()));
        let status =
            status.ok_or_else(|| format!("invalid status {}: expected 200 to 599", self.status))?;
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| field(name, value))
            .collect::<Result<_, _>>()?;
        if self.encoded.is_some() && self.body.is_none() {
            return Err("`encoded` without `body`".to_owned());
        }
        let think_time = match self.think_seconds {
            None => Duration::ZERO,
            Some(seconds) => Duration::try_from_secs_f64(seconds)
                .ok()
                .filter(|time| *time <= LONGEST_THINK_TIME)
                .ok_or_else(|| {
                    format!(
                        "invalid `thinkSeconds` {seconds}: expected 0 to {}",
                        LONGEST_THINK_TIME.as_secs()
                    )
                })?,
        };
        let encoded = self.encoded.map(|EncodedBody { coding, body }| {
            HeaderValue::from_str(&coding)
                .map(|name| (name, body))
                .map_err(|_| format!("invalid content coding {coding:?}"))
        });
        Ok(Recorded {
            method,
            url,
            status,
            headers,
            body: self.body,
            encoded: encoded.transpose()?,
            think_time,
        })
    }
}

fn field(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let field_name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("invalid header name {name:?}"))?;
    let field_value = HeaderValue::from_bytes(value.trim().as_bytes())
        .map_err(|_| format!("invalid header value {value:?}"))?;
    Ok((field_name, field_value))
}
