//! The JSON Schema of the configuration, generated from its types.

use schemars::{JsonSchema, SchemaGenerator};

use super::File;

/// For the schema: what a limit can be written as.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(crate) enum NumberOrText {
    Number(u64),
    Text(String),
}

/// The JSON Schema (draft 2020-12) of a configuration file, for editors and for the reference.
pub fn schema() -> serde_json::Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<File>().to_value();
    close(&mut schema);
    schema
}

/// A key that is not known is an error.
fn close(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".to_owned(), false.into());
            }
            object.values_mut().for_each(close);
        }
        serde_json::Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}
