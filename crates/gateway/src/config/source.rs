//! Files of a configuration: their text, their places, and what is put in from the environment.

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
use super::problem::{Problem, Text};

/// A step from a table or list to what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Where something stands: the number of its file, and the way there in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: usize,
    pub(crate) path: Vec<Step>,
}

impl Place {
    /// Something in what stands here.
    pub(crate) fn of(&self, steps: impl IntoIterator<Item = Step>) -> Self {
        let mut path = self.path.clone();
        path.extend(steps);
        Self { file: self.file, path }
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.of([key.into()])
    }
}

/// One file.
pub(crate) struct Source {
    pub(crate) file: PathBuf,
    text: Text,
    root: Node,
}

/// A value: its span, and its content unless that is read from the span.
///
/// The library's own tree borrows the text, so a [`Source`] cannot keep it.
struct Node {
    span: Range<usize>,
    inside: Inside,
}

enum Inside {
    /// A value without others in it, to be read from its span.
    Written,
    /// Text that differs from what the span has: with variables of the environment, or escapes.
    Text(String),
    /// Each with the place of its key.
    Table(BTreeMap<String, (Range<usize>, Node)>),
    List(Vec<Node>),
}

impl Node {
    fn of(value: &Spanned<DeValue<'_>>) -> Self {
        let inside = match value.get_ref() {
            DeValue::Table(table) => {
                let entry = |(key, value): (&Spanned<Cow<'_, str>>, _)| (key.get_ref().to_string(), (key.span(), Self::of(value)));
                Inside::Table(table.iter().map(entry).collect())
            }
            DeValue::Array(list) => Inside::List(list.iter().map(Self::of).collect()),
            DeValue::String(Cow::Owned(text)) => Inside::Text(text.clone()),
            _ => Inside::Written,
        };
        Self { span: value.span(), inside }
    }

    fn child(&self, step: &Step) -> Option<&Self> {
        match (step, &self.inside) {
            (Step::Key(key), Inside::Table(entries)) => entries.get(key).map(|(_, node)| node),
            (Step::Index(index), Inside::List(list)) => list.get(*index),
            _ => None,
        }
    }

    /// The value as the library has it. `None` if the text at its span is none.
    fn value<'a>(&'a self, text: &'a str) -> Option<Spanned<DeValue<'a>>> {
        let value = match &self.inside {
            Inside::Written => DeValue::parse(text.get(self.span.clone())?).ok()?.into_inner(),
            Inside::Text(text) => DeValue::String(Cow::Borrowed(text)),
            Inside::List(list) => DeValue::Array(list.iter().map(|node| node.value(text)).collect::<Option<_>>()?),
            Inside::Table(entries) => DeValue::Table(table(entries, text)?),
        };
        Some(Spanned::new(self.span.clone(), value))
    }
}

impl Source {
    /// Reads a file as a `T`. All that is wrong with it is added to `problems`; the `T` is then what is right of it, if that can be told.
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
            problems.push(Problem::at(file, &text, &error.span().unwrap_or(0..0), first_line(error.message())));
        }
        // What a file of broken syntax seems to say is not worth a word.
        let is_readable = problems.len() == before;
        let folder = file.parent().unwrap_or(Path::new(""));
        for_each_text(&mut tree, &mut |span, value| {
            if !value.contains("${") {
                return;
            }
            match expand(value, environment, folder) {
                Ok(expanded) => *value = Cow::Owned(expanded),
                Err((message, hint)) => problems.push(Problem::at(file, &text, &span, message).with_hint(hint)),
            }
        });
        let root = Node::of(&tree);
        let decoded = if is_readable { decode(&tree, |span, message| Problem::at(file, &text, &span, message), problems) } else { None };
        (Self { file: file.to_owned(), text, root }, decoded)
    }

    /// Reads the table that `path` leads to as a `T`, without its `name`; text there stands for an empty table.
    pub(crate) fn options<T: DeserializeOwned + JsonSchema>(&self, path: &[Step], problems: &mut Vec<Problem>) -> Option<T> {
        let node = path.iter().try_fold(&self.root, |node, step| node.child(step))?;
        let mut options = match &node.inside {
            Inside::Table(entries) => table(entries, self.text.as_str())?,
            _ => DeTable::new(),
        };
        let name = options.remove("name").and_then(|name| name.get_ref().as_str().map(str::to_owned));
        let name = name.or_else(|| node.value(self.text.as_str())?.get_ref().as_str().map(str::to_owned)).unwrap_or_default();
        let options = Spanned::new(node.span.clone(), DeValue::Table(options));
        let problem = |span: Range<usize>, message: &dyn fmt::Display| {
            let message = message.to_string();
            match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
                Some(field) => Problem::at(&self.file, &self.text, &span, format_args!("the layer {name:?} has no `{field}`"))
                    .with_hint(format_args!("add it, as in {{ name = {name:?}, {field} = … }}")),
                None => Problem::at(&self.file, &self.text, &span, message),
            }
        };
        decode(&options, problem, problems)
    }

    pub(crate) fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Whether the file has something at `path`, right or wrong.
    pub(crate) fn has(&self, path: &[Step]) -> bool {
        path.iter().try_fold(&self.root, |node, step| node.child(step)).is_some()
    }

    pub(crate) fn problem(&self, path: &[Step], message: impl fmt::Display) -> Problem {
        Problem::at(&self.file, &self.text, &self.span(path), message)
    }

    /// The span of what `path` leads to: of its key, where it has one; of what it would be in, where it is missing.
    fn span(&self, path: &[Step]) -> Range<usize> {
        let (mut node, mut span) = (&self.root, 0..0);
        for step in path {
            let next = match (step, &node.inside) {
                (Step::Key(key), Inside::Table(entries)) => entries.get(key).map(|(key, next)| (key.clone(), next)),
                (Step::Index(index), Inside::List(list)) => list.get(*index).map(|next| (next.span.clone(), next)),
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
        io::ErrorKind::InvalidData => "write it in UTF-8",
        _ => "name another file",
    };
    Problem::of_file(file, format_args!("cannot be read: {error}")).with_hint(hint).with_fault(error)
}

/// Single values of a file whose rest may be wrong.
pub(crate) struct Excerpt<'a> {
    file: &'a Path,
    environment: &'a dyn Fn(&str) -> Option<String>,
    text: Text,
    syntax: Option<Problem>,
}

impl<'a> Excerpt<'a> {
    pub(crate) fn read(file: &'a Path, environment: &'a dyn Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let bytes = std::fs::read(file).map_err(|error| unreadable(file, &error))?;
        let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let text = Text::new(text);
        let (_, errors) = DeTable::parse_recoverable(text.as_str());
        let syntax = errors.first().map(|error| Problem::at(file, &text, &error.span().unwrap_or(0..0), first_line(error.message())));
        Ok(Self { file, environment, text, syntax })
    }

    /// The text at `key` of a table of the file, with what is put in, and where it stands; `None` where there is nothing.
    pub(crate) fn text(&self, table: &str, key: &str) -> Result<Option<(String, Range<usize>)>, Problem> {
        let (root, _) = DeTable::parse_recoverable(self.text.as_str());
        let Some(value) = root.get_ref().get(table).and_then(|table| table.get_ref().as_table()?.get(key)) else { return Ok(None) };
        let DeValue::String(written) = value.get_ref() else {
            return Err(self.problem(&value.span(), format_args!("`{key}` in [{table}] is no text")).with_hint("write it in quotes"));
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

fn table<'a>(entries: &'a BTreeMap<String, (Range<usize>, Node)>, text: &'a str) -> Option<DeTable<'a>> {
    let mut table = DeTable::new();
    for (key, (span, node)) in entries {
        table.insert(Spanned::new(span.clone(), Cow::Borrowed(key.as_str())), node.value(text)?);
    }
    Some(table)
}

/// Names that occur twice and the like have further lines, which a problem of one line has no room for.
pub(crate) fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or(message)
}

fn for_each_text<'a>(value: &mut Spanned<DeValue<'a>>, change: &mut impl FnMut(Range<usize>, &mut Cow<'a, str>)) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(text) => change(span, text),
        DeValue::Array(list) => list.iter_mut().for_each(|value| for_each_text(value, change)),
        DeValue::Table(table) => table.iter_mut().for_each(|(_, value)| for_each_text(value, change)),
        _ => {}
    }
}

/// `$${` stands for `${` itself.
fn expand(text: &str, environment: &dyn Fn(&str) -> Option<String>, folder: &Path) -> Result<String, (String, String)> {
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
            return Err(("a ${ has no }".to_owned(), "write $${ for the characters themselves".to_owned()));
        };
        expanded.push_str(&named(&inside[..end], environment, folder)?);
        rest = &inside[end + 1..];
    }
    expanded.push_str(rest);
    Ok(expanded)
}

fn named(name: &str, environment: &dyn Fn(&str) -> Option<String>, folder: &Path) -> Result<String, (String, String)> {
    if let Some(path) = name.strip_prefix("file:") {
        let path = folder.join(path);
        let content = std::fs::read_to_string(&path)
            .map_err(|error| (format!("{} cannot be read: {error}", path.display()), "name a file that this user may read".to_owned()))?;
        return Ok(content.trim_end_matches(['\n', '\r']).to_owned());
    }
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    environment(name)
        .or_else(|| default.map(str::to_owned))
        .ok_or_else(|| (format!("the environment has no {name}"), format!("set it, or write ${{{name}:-…}} for what to take without it")))
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
        assert!(expanded("${NONE}").is_err_and(|(message, _)| message == "the environment has no NONE"));
        assert!(expanded("${TOKEN").is_err());
        assert!(expanded("${file:none}").is_err());
    }

    #[test]
    fn span_is_of_the_key_or_of_what_is_nearest() {
        let text = "[server]\nworkers = 2\n\n[[sites]]\nhosts = [\"a\", \"b\"]\n";
        let mut problems = Vec::new();
        let (source, _) = Source::parse::<super::super::File>(Path::new("x"), Text::new(text.to_owned()), &environment, &mut problems);
        assert_eq!(problems, []);
        let at = |path: &[Step]| &text[source.span(path)];
        assert_eq!(at(&["server".into(), "workers".into()]), "workers");
        assert_eq!(at(&["sites".into(), 0.into(), "hosts".into(), 1.into()]), "\"b\"");
        assert_eq!(at(&["sites".into(), 0.into(), "tls".into()]), "[[sites]]");
    }
}
