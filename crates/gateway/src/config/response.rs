//! What a route makes of requests and responses besides answering.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};

use super::values::written;

/// Pages for statuses of errors: the files by `"404"`, or by `"4xx"` and `"5xx"` for what has none of its own.
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
            "description": "Files by statuses of errors, such as 404, or 4xx and 5xx for those that have none of their own.",
            "additionalProperties": { "type": "string" },
        })
    }
}

/// The status of an error, or all that begin as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorStatus {
    /// One, 400 to 599.
    One(u16),
    /// 4 or 5, and any two digits.
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
        status.map(Self::One).ok_or_else(|| format!("{text:?} is no status of an error: 400 to 599, \"4xx\" or \"5xx\""))
    }
}
written!(ErrorStatus, "error_status", "The status of an error, 4xx or 5xx.", "404");

/// The target that a request is given in place of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite(pub String);

impl FromStr for Rewrite {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_target = text.replace("{path}", "/").parse::<http::uri::PathAndQuery>().is_ok();
        if !text.starts_with('/') && !text.starts_with("{path}") || !is_target || text.contains('#') {
            return Err(format!("{text:?} is no target: it begins with a slash, as in /new{{path}} or /index.php?path={{path}}"));
        }
        Ok(Self(text.to_owned()))
    }
}
written!(Rewrite, "rewrite", "A path, perhaps with a query; {path} stands for the path that was asked for.", "/new{path}");
