//! Generates docs/gateway/reference.md, with each key of the configuration, from the JSON Schema.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use pronghorn_gateway::config::schema;
use pronghorn_gateway::layers::Registry;
use serde_json::Value;

const HEAD: &str = "# All keys of a configuration

Generated from the types: `UPDATE_DOCS=1 cargo test -p pronghorn-gateway --test reference` \
writes \
it. What keys are for, with examples, is in
[README.md](README.md). `pronghorn schema` prints the JSON Schema.
";

const LAYERS: &str = "
## Layers

What may stand beside `name` in a layer of `layers`, of those that come with Pronghorn. What \
they \
are for is in [layers.md](layers.md).
";

#[test]
fn reference_has_each_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway/reference.md");
    let mut wanted = reference(&schema(&Registry::empty()));
    wanted += LAYERS;
    for (name, options) in Registry::standard().schemas() {
        let mut writer = Writer { schema: &options, text: String::new(), seen: BTreeSet::new() };
        writer.table("layers", &format!("The layer `{name}`"), &options);
        wanted += &writer.text;
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("write");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/gateway/reference.md is not up to date: run with UPDATE_DOCS=1");
    for table in [
        "`[server]`",
        "`[upstreams.NAME]`",
        "`[[sites]]`",
        "`[[sites.routes]]`",
        "`[sites.routes.match]`",
    ] {
        assert!(wanted.contains(&format!("\n## {table}")), "{table} is missing");
    }
    for (name, _) in Registry::standard().schemas() {
        assert!(wanted.contains(&format!("\n## The layer `{name}`\n")), "{name} is missing");
    }
}

fn reference(schema: &Value) -> String {
    let mut writer = Writer { schema, text: HEAD.to_owned(), seen: BTreeSet::new() };
    writer.table("", "Top level", schema);
    writer.text
}

struct Writer<'a> {
    schema: &'a Value,
    text: String,
    seen: BTreeSet<String>,
}

impl<'a> Writer<'a> {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }

    /// Writes the keys of a table, and then its subtables. `path` is its path, such as
    /// `sites.routes`.
    fn table(&mut self, path: &str, title: &str, table: &'a Value) {
        let Some(keys) = table.get("properties").and_then(Value::as_object) else { return };
        let required: Vec<_> = table
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        self.line(format_args!("\n## {title}"));
        if let Some(description) = describe(table) {
            self.line(format_args!("\n{description}"));
        }
        self.text += "\n| key | value | default | meaning |\n|---|---|---|---|\n";
        let mut inner = Vec::new();
        for (key, value) in keys {
            let forms = self.forms(value);
            let default = match value.get("default") {
                _ if required.contains(&key.as_str()) => "required".to_owned(),
                Some(Value::Null) | None => String::new(),
                Some(default) if is_plain(default) => format!("`{default}`"),
                Some(_) => String::new(),
            };
            let own = value.get("examples").and_then(Value::as_array).map(Vec::as_slice);
            let words: Vec<_> = forms.iter().map(|form| self.words(form, own)).collect();
            let meaning = describe(value)
                .or_else(|| forms.first().and_then(|form| describe(form)))
                .unwrap_or_default();
            let words = words
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>()
                .join(", or ");
            self.line(format_args!(
                "| `{key}` | {} | {} | {} |",
                cell(&words),
                cell(&default),
                cell(&meaning)
            ));
            inner.extend(forms.into_iter().map(|form| (key.clone(), form)));
        }
        for (key, form) in inner {
            self.inner(path, &key, form);
        }
    }

    fn inner(&mut self, path: &str, key: &str, form: &'a Value) {
        let path = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        if form.get("properties").is_some() {
            if self.seen.insert(path.clone()) {
                self.table(&path, &format!("`[{path}]`"), form);
            }
        } else if let Some(items) = form.get("items") {
            for one in self.forms(items).into_iter().filter(|one| one.get("properties").is_some()) {
                if self.seen.insert(path.clone()) {
                    self.table(&path, &format!("`[[{path}]]`"), one);
                }
            }
        } else if let Some(values) =
            form.get("additionalProperties").filter(|values| values.is_object())
        {
            for one in self.forms(values).into_iter().filter(|one| one.get("properties").is_some())
            {
                let path = format!("{path}.NAME");
                if self.seen.insert(path.clone()) {
                    self.table(&path, &format!("`[{path}]`"), one);
                }
            }
        }
    }

    /// Returns the possible forms of a value: references resolved, alternatives flattened.
    fn forms(&self, value: &'a Value) -> Vec<&'a Value> {
        if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            let target =
                reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
            return target.map(|target| self.forms(target)).unwrap_or_default();
        }
        for alternatives in ["anyOf", "oneOf"] {
            if let Some(list) = value.get(alternatives).and_then(Value::as_array) {
                // An enumeration of names is one form.
                if list.iter().all(|one| one.get("const").is_some()) {
                    return vec![value];
                }
                return list
                    .iter()
                    .flat_map(|one| self.forms(one))
                    .filter(|one| one.get("type") != Some(&"null".into()))
                    .collect();
            }
        }
        vec![value]
    }

    /// Describes a form of a value. `own` is examples of the key, which replace those of the type.
    fn words(&self, form: &'a Value, own: Option<&[Value]>) -> String {
        if let Some(choices) = form.get("oneOf").and_then(Value::as_array) {
            let names: Vec<_> = choices
                .iter()
                .filter_map(|one| one.get("const"))
                .map(|name| format!("`{name}`"))
                .collect();
            return names.join(", ");
        }
        let kind = match form.get("type") {
            Some(Value::Array(kinds)) => kinds
                .iter()
                .filter_map(Value::as_str)
                .find(|kind| *kind != "null")
                .unwrap_or_default(),
            Some(kind) => kind.as_str().unwrap_or_default(),
            None => "",
        };
        let examples =
            own.or_else(|| form.get("examples")?.as_array().map(Vec::as_slice)).unwrap_or_default();
        let example = examples.split_last().map(|(last, others)| match others {
            [] => format!(", such as `{last}`"),
            _ => format!(
                ", such as {} or `{last}`",
                others.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
            ),
        });
        match kind {
            "string" => format!("a string{}", example.unwrap_or_default()),
            "boolean" => "`true` or `false`".to_owned(),
            "integer" => {
                let bound = |name: &str| {
                    form.get(name).and_then(Value::as_f64).map(|bound| bound.to_string())
                };
                match (bound("minimum"), bound("maximum")) {
                    (Some(low), Some(high)) => format!("a number, {low} to {high}"),
                    (Some(low), None) if low != "0" => format!("a number, at least {low}"),
                    _ => "a number".to_owned(),
                }
            }
            "number" => "a number".to_owned(),
            "array" => {
                let items: Vec<_> =
                    form.get("items").map(|items| self.forms(items)).unwrap_or_default();
                let own = own.and_then(|lists| lists.first()?.as_array().map(Vec::as_slice));
                let words: BTreeSet<_> = items.iter().map(|item| self.words(item, own)).collect();
                format!("a list: {}", words.into_iter().collect::<Vec<_>>().join(", or "))
            }
            "object" => "a table".to_owned(),
            _ => "any value".to_owned(),
        }
    }
}

fn is_plain(default: &Value) -> bool {
    match default {
        Value::Array(list) => !list.is_empty() && list.iter().all(is_plain),
        Value::Object(_) => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    }
}

fn describe(value: &Value) -> Option<String> {
    value.get("description").and_then(Value::as_str).map(|text| text.replace('\n', " "))
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}
