//! Error pages and rewrites of a route.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::values::string_type;

/// Error pages: files by status, such as `"404"`, or `"4xx"` and `"5xx"` for all statuses without
/// one of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorPages(pub BTreeMap<ErrorStatus, PathBuf>);

impl<'de> Deserialize<'de> for ErrorPages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BTreeMap::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for ErrorPages {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "error_pages".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "Files by error status, such as 404, or 4xx and 5xx for statuses \
                without one of their own.",
            "additionalProperties": { "type": "string" },
        })
    }
}

/// An error status, or a class of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorStatus {
    /// A single status, 400 to 599.
    One(u16),
    /// All statuses that begin with this digit, 4 or 5.
    All(u16),
}

impl FromStr for ErrorStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "4xx" => return Ok(Self::All(4)),
            "5xx" => return Ok(Self::All(5)),
            _ => {}
        }
        let status = text.parse().ok().filter(|status| (400..=599).contains(status));
        status.map(Self::One).ok_or_else(|| {
            format!("invalid error status {text:?}: use 400 to 599, \"4xx\" or \"5xx\"")
        })
    }
}
string_type!(ErrorStatus, "error_status", "An error status, 4xx or 5xx.", "404");

/// The target that replaces a request's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite(pub String);

impl FromStr for Rewrite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_target = text.replace("{path}", "/").parse::<http::uri::PathAndQuery>().is_ok();
        if !text.starts_with('/') && !text.starts_with("{path}") || !is_target || text.contains('#')
        {
            return Err(format!(
                "invalid rewrite target {text:?}: it must begin with a slash, as in /new{{path}} \
                    or /index.php?path={{path}}"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}
string_type!(
    Rewrite,
    "rewrite",
    "A path, with an optional query; {path} stands for the requested path.",
    "/new{path}"
);
