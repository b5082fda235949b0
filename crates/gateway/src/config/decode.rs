//! Decoding of a TOML table into a type, reporting all errors and not just the first.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::fmt::Display;
use std::ops::Range;

use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use super::location::Step;
use super::problem::{Problem, first_line, nearest};

/// Maximum number of times that a file is decoded. Each error takes one more pass; after this many
/// there are enough to fix first.
const MAX_PASSES: usize = 50;

/// Decodes `tree` as a `T`. Adds each error to `problems`, built by `problem` from its span and
/// message.
///
/// Decoding stops at the first error. The value that caused it is then removed and the rest is
/// decoded again, until there are no more errors, at most [`MAX_PASSES`] times. The result can
/// be checked further, unless an entry of a list of tables was removed: the entries after it have
/// other numbers then.
pub(crate) fn decode<T: DeserializeOwned + JsonSchema>(
    tree: &Spanned<DeValue<'_>>,
    problem: impl Fn(Range<usize>, &dyn Display) -> Problem,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    // Generating the schema takes longer than reading the few keys of most tables.
    let schema =
        LazyCell::new(|| SchemaGenerator::default().into_root_schema_for::<T>().to_value());
    let whole = tree;
    let mut tree = tree.clone();
    let mut is_in_order = true;
    let mut unknown: Vec<Problem> = Vec::new();
    let mut known: HashSet<Range<usize>> = HashSet::new();
    for _ in 0..MAX_PASSES {
        let mut ignored = Vec::new();
        let result =
            serde_ignored::deserialize::<_, _, T>(ValueDeserializer::from(tree.clone()), |path| {
                ignored.push(steps(&path));
            });
        for path in ignored {
            let Some((Step::Key(key), parent)) = path.split_last() else { continue };
            let Some(span) = key_span(&tree, parent, key) else { continue };
            if !known.insert(span.clone()) {
                continue;
            }
            let names = keys(&schema, parent);
            let mut one = problem(span, &format_args!("unknown key {key:?}"));
            one.hint = match nearest(key, names.iter().map(String::as_str)) {
                Some(name) => Some(format!("did you mean {name:?}?")),
                None if names.is_empty() => None,
                None => Some(format!("known keys: {}", names.join(", "))),
            };
            unknown.push(one);
        }
        let error = match result {
            Ok(value) => {
                problems.extend(unknown);
                return is_in_order.then_some(value);
            }
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        // A field that was removed is already reported, and not missing.
        let missing =
            error.message().strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
        if missing.is_none_or(|name| !has_key(whole, &span, name)) {
            let name = name_of(&tree, &span);
            problems.push(in_toml_terms(
                with_hint(problem(span.clone(), &first_line(error.message()))),
                name,
            ));
        }
        if !remove(&mut tree, &span, &mut is_in_order) {
            problems.extend(unknown);
            return None;
        }
    }
    problems.extend(unknown);
    // The end of the file, so that this problem is listed last.
    let end = usize::MAX..usize::MAX;
    problems.push(
        problem(end, &format_args!("there may be more errors: stopped after {MAX_PASSES}"))
            .with_hint("fix these first"),
    );
    None
}

/// Returns whether the table with this span has a key.
fn has_key(value: &Spanned<DeValue<'_>>, span: &Range<usize>, key: &str) -> bool {
    match value.get_ref() {
        DeValue::Table(table)
            if value.span() == *span && table.iter().any(|(name, _)| name.get_ref() == key) =>
        {
            true
        }
        DeValue::Table(table) => table.iter().any(|(_, inner)| has_key(inner, span, key)),
        DeValue::Array(list) => list.iter().any(|inner| has_key(inner, span, key)),
        _ => false,
    }
}

/// Replaces serde's list of all accepted names by the most similar one as a hint.
fn with_hint(mut problem: Problem) -> Problem {
    let Some((message, expected)) = problem.message.split_once(", expected one of ") else {
        return problem;
    };
    let Some(given) = message.split('`').nth(1) else { return problem };
    let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    problem.hint =
        nearest(given, known.iter().copied()).map(|name| format!("did you mean {name:?}?"));
    problem
}

/// Maximum bytes of a quoted value that an error repeats.
const SHOWN_BYTES: usize = 60;

/// Rewrites serde's type names to TOML terms, and adds a hint on how to write the expected type.
fn in_toml_terms(mut problem: Problem, name: Option<&str>) -> Problem {
    let Some((given, expected)) = problem.message.split_once(", expected ") else { return problem };
    let Some((kind, given)) = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|kind| Some((kind, given.strip_prefix(kind)?)))
    else {
        return problem;
    };
    let is_text = given.starts_with("string ");
    let given = given
        .replacen("string ", "text ", 1)
        .replacen("map", "a table", 1)
        .replacen("sequence", "a list", 1);
    let whole = |type_name: &str| match type_name {
        "u8" => Some(u64::from(u8::MAX)),
        "u16" => Some(u64::from(u16::MAX)),
        "u32" => Some(u64::from(u32::MAX)),
        "u64" | "usize" => Some(u64::MAX),
        _ => None,
    };
    let (expected, hint) = match expected {
        "a sequence" if given == "a table" => {
            let name = name.unwrap_or("…");
            (
                "a list of tables".to_owned(),
                Some(format!(
                    "write [[{name}]] in double brackets, and before the tables in it such as \
                        [[{name}.…]]"
                )),
            )
        }
        "a sequence" => {
            let one =
                given.strip_prefix("text ").filter(|text| text.len() <= SHOWN_BYTES).unwrap_or("…");
            ("a list".to_owned(), Some(format!("write it in square brackets, as in [{one}]")))
        }
        "a map" => ("a table".to_owned(), Some("write it as { key = … }".to_owned())),
        "a string" => ("text".to_owned(), Some("write it in quotes".to_owned())),
        "path string" => ("a path".to_owned(), Some("write it in quotes".to_owned())),
        name if name.starts_with("struct ") => {
            ("a table".to_owned(), Some("write it as { key = … }".to_owned()))
        }
        "a boolean" => {
            ("true or false".to_owned(), is_text.then(|| "write it without quotes".to_owned()))
        }
        other => match whole(other) {
            Some(most) => (
                format!("a whole number from 0 to {most}"),
                is_text.then(|| "write it without quotes".to_owned()),
            ),
            None => (other.to_owned(), None),
        },
    };
    problem.message = format!("{kind}{given}, expected {expected}");
    problem.hint = problem.hint.or(hint);
    problem
}

/// Returns the key of the value with this span.
fn name_of<'a>(value: &'a Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<&'a str> {
    match value.get_ref() {
        DeValue::Table(table) => table.iter().find_map(|(key, inner)| {
            if inner.span() == *span { Some(&**key.get_ref()) } else { name_of(inner, span) }
        }),
        DeValue::Array(list) => list.iter().find_map(|inner| name_of(inner, span)),
        _ => None,
    }
}

fn steps(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    let (parent, step) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(Step::Index(*index))),
        Path::Map { parent, key } => (parent, Some(Step::Key(key.clone()))),
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut steps = steps(parent);
    steps.extend(step);
    steps
}

fn key_span(tree: &Spanned<DeValue<'_>>, parent: &[Step], key: &str) -> Option<Range<usize>> {
    let mut value = tree;
    for step in parent {
        value = match (step, value.get_ref()) {
            (Step::Key(key), DeValue::Table(table)) => {
                table.iter().find(|(name, _)| *name.get_ref() == **key)?.1
            }
            (Step::Index(index), DeValue::Array(list)) => list.get(*index)?,
            _ => return None,
        };
    }
    let table = value.get_ref().as_table()?;
    table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, _)| name.span())
}

/// Removes the smallest value that contains `span`. Returns `false` if that is the root. Clears
/// `is_in_order` if the value was a table in a list.
fn remove(value: &mut Spanned<DeValue<'_>>, span: &Range<usize>, is_in_order: &mut bool) -> bool {
    // The span of a table is that of its header, so its entries may lie outside of it.
    let holds = |value: &Spanned<DeValue<'_>>| {
        value.span().start <= span.start && span.end <= value.span().end
    };
    match value.get_mut() {
        DeValue::Table(table) => {
            for (_, inner) in table.iter_mut() {
                if remove(inner, span, is_in_order) {
                    return true;
                }
            }
            let key = table
                .iter()
                .find(|(key, inner)| holds(inner) || key.span() == *span)
                .map(|(key, _)| key.clone());
            key.is_some_and(|key| table.remove(&key).is_some())
        }
        DeValue::Array(list) => {
            for inner in list.iter_mut() {
                if remove(inner, span, is_in_order) {
                    return true;
                }
            }
            let Some(index) = list.iter().position(holds) else { return false };
            *is_in_order &= list[index].get_ref().as_table().is_none();
            *list = list
                .iter()
                .enumerate()
                .filter(|(other, _)| *other != index)
                .map(|(_, inner)| inner.clone())
                .collect();
            true
        }
        _ => false,
    }
}

/// Returns the names that the schema knows at `path`.
fn keys(schema: &Json, path: &[Step]) -> Vec<String> {
    let mut here = tables(schema, schema);
    for step in path {
        let inner = here.into_iter().filter_map(|table| match step {
            Step::Key(key) => table
                .get("properties")
                .and_then(|names| names.get(key))
                .or_else(|| table.get("additionalProperties")),
            Step::Index(_) => table.get("items"),
        });
        here = inner.flat_map(|inner| tables(schema, inner)).collect();
    }
    let names = here.into_iter().filter_map(|table| table.get("properties")?.as_object());
    names.flat_map(|names| names.keys().cloned()).collect()
}

/// Returns the schemas that `part` allows: references are resolved and alternatives listed.
fn tables<'a>(schema: &'a Json, part: &'a Json) -> Vec<&'a Json> {
    if let Some(reference) = part.get("$ref").and_then(Json::as_str) {
        let target = reference.strip_prefix('#').and_then(|pointer| schema.pointer(pointer));
        return target.map(|target| tables(schema, target)).unwrap_or_default();
    }
    match part.get("anyOf").or_else(|| part.get("oneOf")).and_then(Json::as_array) {
        Some(alternatives) => alternatives.iter().flat_map(|one| tables(schema, one)).collect(),
        None => vec![part],
    }
}
