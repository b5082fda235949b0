//! Layers of routes in the configuration.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::location::Location;
use super::short_form::{self, ShortForm};

/// A route's layer: its name, with its options: `"compress"`, or `{ name = "rate-limit", requests =
/// 10 }`.
///
/// The names and options depend on the server that runs the configuration, since programs can add
/// their own layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Registered name of the layer.
    pub name: String,
    /// Other keys of its table.
    pub(crate) options: BTreeMap<String, toml::Value>,
    pub(crate) location: Location,
}

/// A layer as a table.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LayerTable {
    /// Name of the layer.
    name: String,
    /// Options of the layer.
    #[serde(flatten)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    options: BTreeMap<String, toml::Value>,
}

impl ShortForm for Layer {
    type Table = LayerTable;

    const EXPECTED: &'static str =
        "a layer name such as \"compress\", or { name = \"compress\", … }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self { name: text.to_owned(), options: BTreeMap::new(), location: Location::default() })
    }

    fn from_table(table: LayerTable) -> Self {
        Self { name: table.name, options: table.options, location: Location::default() }
    }
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        short_form::deserialize(deserializer)
    }
}

impl JsonSchema for Layer {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "layer".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A layer by its name, with its options.",
            "anyOf": [
                { "type": "string", "examples": ["compress"] },
                {
                    "type": "object",
                    "properties": { "name": { "type": "string", "description": "The name of the \
                        layer.", "examples": ["compress"] } },
                    "required": ["name"],
                    "additionalProperties": true,
                },
            ],
        })
    }
}
