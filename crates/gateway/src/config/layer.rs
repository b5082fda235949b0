//! Layers of routes, as they stand in a configuration.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::either::{self, Short};
use super::source::Place;

/// A layer of a route by its name, with its options: `"compress"`, or `{ name = "rate-limit", requests = 10 }`.
///
/// Which names there are, and which options they have, the server knows that is to run it: programs add layers of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The name that it is registered by.
    pub name: String,
    /// What else stands in its table.
    pub(crate) options: BTreeMap<String, toml::Value>,
    pub(crate) place: Place,
}

/// A layer as a table.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct LayerTable {
    /// The name of the layer.
    name: String,
    /// The options of the layer of that name.
    #[serde(flatten)]
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    options: BTreeMap<String, toml::Value>,
}

impl Short for Layer {
    type Table = LayerTable;

    const EXPECTED: &'static str = "the name of a layer such as \"compress\", or { name = \"compress\", … }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self { name: text.to_owned(), options: BTreeMap::new(), place: Place::default() })
    }

    fn from_table(table: LayerTable) -> Self {
        Self { name: table.name, options: table.options, place: Place::default() }
    }
}

impl<'de> Deserialize<'de> for Layer {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        either::deserialize(deserializer)
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
                    "properties": { "name": { "type": "string", "description": "The name of the layer.", "examples": ["compress"] } },
                    "required": ["name"],
                    "additionalProperties": true,
                },
            ],
        })
    }
}
