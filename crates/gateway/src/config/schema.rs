//! The JSON Schema of the configuration, generated from its types.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::File;
use crate::layers::Registry;

/// For the schema: what a limit can be written as.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is there for its schema")]
pub(crate) enum NumberOrText {
    Number(u64),
    Text(String),
}

/// The JSON Schema (draft 2020-12) of a configuration file that may name these layers, for editors and for the reference. With none, any
/// name and any options are right.
pub fn schema(layers: &Registry) -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<File>().to_value();
    let mut forms: Vec<Value> = layers.schemas().map(|(name, options)| with_name(name, options)).collect();
    if let Some(layer) = schema.pointer_mut("/$defs/layer/anyOf").filter(|_| !forms.is_empty()) {
        let names: Vec<_> = layers.names().collect();
        forms.insert(0, json!({ "type": "string", "enum": names }));
        *layer = Value::Array(forms);
    }
    close(&mut schema);
    schema
}

/// The options of a layer, with its name beside them.
fn with_name(name: &str, mut options: Value) -> Value {
    let properties = options.as_object_mut().map(|options| options.entry("properties").or_insert_with(|| json!({})));
    if let Some(properties) = properties.and_then(Value::as_object_mut) {
        properties.insert("name".to_owned(), json!({ "const": name }));
    }
    let required = options.as_object_mut().map(|options| options.entry("required").or_insert_with(|| json!([])));
    if let Some(required) = required.and_then(Value::as_array_mut) {
        required.push("name".into());
    }
    options
}

/// A key that is not known is an error.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".to_owned(), false.into());
            }
            object.values_mut().for_each(close);
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        _ => {}
    }
}
