//! Configuration files: their text, the positions of values, and substitution from the environment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::decode::decode;
use super::location::Step;
use super::problem::{Problem, Text, first_line};

/// A configuration file.
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    text: Text,
    root: Node,
}

/// A value: its span, and its content unless that is parsed from the span.
///
/// The TOML library's own tree borrows the text, so a [`Source`] cannot store it.
struct Node {
    span: Range<usize>,
    inside: Content,
}

enum Content {
    /// A simple value, to be parsed from its span.
    Unparsed,
    /// A string that differs from the text of its span: it contains environment variables or
    /// escapes.
    Text(String),
    /// Entries, each with the span of its key.
    Table(BTreeMap<String, (Range<usize>, Node)>),
    List(Vec<Node>),
}

impl Node {
    fn of(value: &Spanned<DeValue<'_>>) -> Self {
        let inside = match value.get_ref() {
            DeValue::Table(table) => {
                let entry = |(key, value): (&Spanned<Cow<'_, str>>, _)| {
                    (key.get_ref().to_string(), (key.span(), Self::of(value)))
                };
                Content::Table(table.iter().map(entry).collect())
            }
            DeValue::Array(list) => Content::List(list.iter().map(Self::of).collect()),
            DeValue::String(Cow::Owned(text)) => Content::Text(text.clone()),
            _ => Content::Unparsed,
        };
        Self { span: value.span(), inside }
    }

    fn child(&self, step: &Step) -> Option<&Self> {
        match (step, &self.inside) {
            (Step::Key(key), Content::Table(entries)) => entries.get(key).map(|(_, node)| node),
            (Step::Index(index), Content::List(list)) => list.get(*index),
            _ => None,
        }
    }

    /// Returns the value for the TOML library, or `None` if the text at its span does not parse.
    fn value<'a>(&'a self, text: &'a str) -> Option<Spanned<DeValue<'a>>> {
        let value = match &self.inside {
            Content::Unparsed => DeValue::parse(text.get(self.span.clone())?).ok()?.into_inner(),
            Content::Text(text) => DeValue::String(Cow::Borrowed(text)),
            Content::List(list) => {
                DeValue::Array(list.iter().map(|node| node.value(text)).collect::<Option<_>>()?)
            }
            Content::Table(entries) => DeValue::Table(table(entries, text)?),
        };
        Some(Spanned::new(self.span.clone(), value))
    }
}

impl Source {
    /// Reads a file as a `T`. Adds all errors to `problems`; with errors, the `T` is the valid
    /// part, if there is one.
    pub(crate) fn read<T: DeserializeOwned + JsonSchema>(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
        problems: &mut Vec<Problem>,
    ) -> Option<(Self, Option<T>)> {
        match std::fs::read_to_string(file) {
            Ok(text) => Some(Self::parse(file, Text::new(text), environment, problems)),
            Err(error) => {
                problems.push(unreadable(file, &error));
                None
            }
        }
    }

    pub(crate) fn parse<T: DeserializeOwned + JsonSchema>(
        file: &Path,
        text: Text,
        environment: &dyn Fn(&str) -> Option<String>,
        problems: &mut Vec<Problem>,
    ) -> (Self, Option<T>) {
        let before = problems.len();
        let (table, errors) = DeTable::parse_recoverable(text.as_str());
        let mut tree = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
        for error in errors {
            problems.push(Problem::at(
                file,
                &text,
                &error.span().unwrap_or(0..0),
                first_line(error.message()),
            ));
        }
        // Values of a file with syntax errors are not reported.
        let is_readable = problems.len() == before;
        let folder = file.parent().unwrap_or(Path::new(""));
        for_each_text(&mut tree, &mut |span, value| {
            if !value.contains("${") {
                return;
            }
            match expand(value, environment, folder) {
                Ok(expanded) => *value = Cow::Owned(expanded),
                Err((message, hint)) => {
                    problems.push(Problem::at(file, &text, &span, message).with_hint(hint));
                }
            }
        });
        let root = Node::of(&tree);
        let decoded = if is_readable {
            decode(&tree, |span, message| Problem::at(file, &text, &span, message), problems)
        } else {
            None
        };
        (Self { file: file.to_owned(), text, root }, decoded)
    }

    /// Decodes the table at `path` as a `T`, without its `name`; a string there means an empty
    /// table.
    pub(crate) fn options<T: DeserializeOwned + JsonSchema>(
        &self,
        path: &[Step],
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let node = path.iter().try_fold(&self.root, |node, step| node.child(step))?;
        let mut options = match &node.inside {
            Content::Table(entries) => table(entries, self.text.as_str())?,
            _ => DeTable::new(),
        };
        let name =
            options.remove("name").and_then(|name| name.get_ref().as_str().map(str::to_owned));
        let name = name
            .or_else(|| node.value(self.text.as_str())?.get_ref().as_str().map(str::to_owned))
            .unwrap_or_default();
        let options = Spanned::new(node.span.clone(), DeValue::Table(options));
        let problem = |span: Range<usize>, message: &dyn fmt::Display| {
            let message = message.to_string();
            match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
                Some(field) => Problem::at(
                    &self.file,
                    &self.text,
                    &span,
                    format_args!("the layer {name:?} has no `{field}`"),
                )
                .with_hint(format_args!("add it, as in {{ name = {name:?}, {field} = … }}")),
                None => Problem::at(&self.file, &self.text, &span, message),
            }
        };
        decode(&options, problem, problems)
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Returns whether the file has a value at `path`, valid or not.
    pub(crate) fn has(&self, path: &[Step]) -> bool {
        path.iter().try_fold(&self.root, |node, step| node.child(step)).is_some()
    }

    pub(crate) fn problem(&self, path: &[Step], message: impl fmt::Display) -> Problem {
        Problem::at(&self.file, &self.text, &self.span(path), message)
    }

    /// Returns the span of the key or value at `path`; if it is missing, the span of its closest
    /// parent.
    fn span(&self, path: &[Step]) -> Range<usize> {
        let (mut node, mut span) = (&self.root, 0..0);
        for step in path {
            let next = match (step, &node.inside) {
                (Step::Key(key), Content::Table(entries)) => {
                    entries.get(key).map(|(key, next)| (key.clone(), next))
                }
                (Step::Index(index), Content::List(list)) => {
                    list.get(*index).map(|next| (next.span.clone(), next))
                }
                _ => None,
            };
            let Some((next_span, next)) = next else { break };
            (node, span) = (next, next_span);
        }
        span
    }
}

fn unreadable(file: &Path, error: &io::Error) -> Problem {
    let hint = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "make it readable for this user",
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "use another file",
    };
    Problem::of_file(file, format_args!("cannot read the file: {error}"))
        .with_hint(hint)
        .with_fault(error)
}

/// Single values of a file whose other parts may be invalid.
pub(crate) struct PartialFile<'a> {
    file: &'a Path,
    environment: &'a dyn Fn(&str) -> Option<String>,
    text: Text,
    syntax: Option<Problem>,
}

impl<'a> PartialFile<'a> {
    pub(crate) fn read(
        file: &'a Path,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        let bytes = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let text = Text::new(text);
        let (_, errors) = DeTable::parse_recoverable(text.as_str());
        let syntax = errors.first().map(|error| {
            Problem::at(file, &text, &error.span().unwrap_or(0..0), first_line(error.message()))
        });
        Ok(Self { file, environment, text, syntax })
    }

    /// Returns the string at `key` of a table of the file, with variables substituted, and its
    /// span; `None` if it is missing.
    pub(crate) fn text(
        &self,
        table: &str,
        key: &str,
    ) -> Result<Option<(String, Range<usize>)>, Problem> {
        let (root, _) = DeTable::parse_recoverable(self.text.as_str());
        let Some(value) =
            root.get_ref().get(table).and_then(|table| table.get_ref().as_table()?.get(key))
        else {
            return Ok(None);
        };
        let DeValue::String(written) = value.get_ref() else {
            return Err(self
                .problem(&value.span(), format_args!("`{key}` in [{table}] is not a string"))
                .with_hint("write it in quotes"));
        };
        match expand(written, self.environment, self.file.parent().unwrap_or(Path::new(""))) {
            Ok(expanded) => Ok(Some((expanded, value.span()))),
            Err((message, hint)) => Err(self.problem(&value.span(), message).with_hint(hint)),
        }
    }

    pub(crate) fn problem(&self, span: &Range<usize>, message: impl fmt::Display) -> Problem {
        Problem::at(self.file, &self.text, span, message)
    }

    pub(crate) fn into_syntax(self) -> Option<Problem> {
        self.syntax
    }
}

fn table<'a>(
    entries: &'a BTreeMap<String, (Range<usize>, Node)>,
    text: &'a str,
) -> Option<DeTable<'a>> {
    let mut table = DeTable::new();
    for (key, (span, node)) in entries {
        table.insert(Spanned::new(span.clone(), Cow::Borrowed(key.as_str())), node.value(text)?);
    }
    Some(table)
}

fn for_each_text<'a>(
    value: &mut Spanned<DeValue<'a>>,
    change: &mut impl FnMut(Range<usize>, &mut Cow<'a, str>),
) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(text) => change(span, text),
        DeValue::Array(list) => list.iter_mut().for_each(|value| for_each_text(value, change)),
        DeValue::Table(table) => {
            table.iter_mut().for_each(|(_, value)| for_each_text(value, change));
        }
        _ => {}
    }
}

/// Substitutes `${…}` in `text`. `$${` stands for a literal `${`.
fn expand(
    text: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    folder: &Path,
) -> Result<String, (String, String)> {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            expanded.push_str(&rest[..start - 1]);
            expanded.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        expanded.push_str(&rest[..start]);
        let inside = &rest[start + 2..];
        let Some(end) = inside.find('}') else {
            return Err(("missing } after ${".to_owned(), "write $${ for a literal ${".to_owned()));
        };
        expanded.push_str(&substitute_one(&inside[..end], environment, folder)?);
        rest = &inside[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn substitute_one(
    name: &str,
    environment: &dyn Fn(&str) -> Option<String>,
    folder: &Path,
) -> Result<String, (String, String)> {
    if let Some(path) = name.strip_prefix("file:") {
        let path = folder.join(path);
        let content = std::fs::read_to_string(&path).map_err(|error| {
            (
                format!("cannot read {}: {error}", path.display()),
                "name a file that this user may read".to_owned(),
            )
        })?;
        return Ok(content.trim_end_matches(['\n', '\r']).to_owned());
    }
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    environment(name).or_else(|| default.map(str::to_owned)).ok_or_else(|| {
        (
            format!("environment variable {name} is not set"),
            format!("set it, or give a default as ${{{name}:-…}}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        (name == "TOKEN").then(|| "secret".to_owned())
    }

    #[test]
    fn environment_is_put_in() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("key"), "from a file\n").expect("write");
        let expanded = |text: &str| expand(text, &environment, folder.path());
        assert_eq!(expanded("a ${TOKEN} b ${NONE:-c}").as_deref(), Ok("a secret b c"));
        assert_eq!(expanded("${file:key}").as_deref(), Ok("from a file"));
        assert_eq!(expanded("$${TOKEN}").as_deref(), Ok("${TOKEN}"));
        assert!(
            expanded("${NONE}")
                .is_err_and(|(message, _)| message == "environment variable NONE is not set")
        );
        assert!(expanded("${TOKEN").is_err());
        assert!(expanded("${file:none}").is_err());
    }

    #[test]
    fn span_is_of_the_key_or_of_what_is_nearest() {
        let text = "[server]\nworkers = 2\n\n[[sites]]\nhosts = [\"a\", \"b\"]\n";
        let mut problems = Vec::new();
        let (source, _) = Source::parse::<super::super::file::File>(
            Path::new("x"),
            Text::new(text.to_owned()),
            &environment,
            &mut problems,
        );
        assert_eq!(problems, []);
        let at = |path: &[Step]| &text[source.span(path)];
        assert_eq!(at(&["server".into(), "workers".into()]), "workers");
        assert_eq!(at(&["sites".into(), 0.into(), "hosts".into(), 1.into()]), "\"b\"");
        assert_eq!(at(&["sites".into(), 0.into(), "tls".into()]), "[[sites]]");
    }
}
