//! The JSON Schema of the configuration, generated from its types.

use schemars::SchemaGenerator;
use serde_json::{Value, json};

use super::file::File;
use crate::layers::Registry;

/// Returns the JSON Schema (draft 2020-12) of a configuration file with these layers, for editors
/// and for the reference. Without layers, any name and options are valid.
pub fn schema(layers: &Registry) -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<File>().to_value();
    let mut forms: Vec<Value> =
        layers.schemas().map(|(name, options)| with_name(name, options)).collect();
    if let Some(layer) = schema.pointer_mut("/$defs/layer/anyOf").filter(|_| !forms.is_empty()) {
        let names: Vec<_> = layers.names().collect();
        forms.insert(0, json!({ "type": "string", "enum": names }));
        *layer = Value::Array(forms);
    }
    close(&mut schema);
    schema
}

/// Adds the layer's name to the schema of its options.
fn with_name(name: &str, mut options: Value) -> Value {
    let properties = options
        .as_object_mut()
        .map(|options| options.entry("properties").or_insert_with(|| json!({})));
    if let Some(properties) = properties.and_then(Value::as_object_mut) {
        properties.insert("name".to_owned(), json!({ "const": name }));
    }
    let required = options
        .as_object_mut()
        .map(|options| options.entry("required").or_insert_with(|| json!([])));
    if let Some(required) = required.and_then(Value::as_array_mut) {
        required.push("name".into());
    }
    options
}

/// Makes unknown keys an error.
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
