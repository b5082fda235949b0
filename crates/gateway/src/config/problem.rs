//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong: `site.toml:12:5: unknown key "prox"; did you mean "proxy"?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Line and column of what is wrong, from 1 on; `None` where it is the file as a whole.
    pub position: Option<(usize, usize)>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn of_file(file: &Path, message: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), position: None, message: message.to_string(), hint: None }
    }

    pub(crate) fn at(file: &Path, text: &str, span: &Range<usize>, message: impl fmt::Display) -> Self {
        Self { position: Some(position(text, span.start)), ..Self::of_file(file, message) }
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.position {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|char| *char != '\n').count() + 1;
    (line, column)
}

/// The name that is most like `name`, if one is like it at all.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &&str| strsim::damerau_levenshtein(name, other);
    let best = known.into_iter().min_by_key(likeness)?;
    (likeness(&best) <= 2.max(name.len() / 3)).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_lines_and_characters() {
        let text = "a = 1\nß = \"x\"\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 6), (2, 1));
        assert_eq!(position(text, 9), (2, 3));
        assert_eq!(position(text, 1000), (3, 1));
    }

    #[test]
    fn nearest_is_silent_when_nothing_is_like_it() {
        assert_eq!(nearest("prox", ["files", "proxy"]), Some("proxy"));
        assert_eq!(nearest("zzzzzz", ["files", "proxy"]), None);
    }
}
