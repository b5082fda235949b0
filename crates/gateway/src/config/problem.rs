//! Problems in a configuration, with their position.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A problem in a configuration: `site.toml:12:5: unknown key "prox"; did you mean "proxy"?`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// File, as it was named.
    pub file: PathBuf,
    /// Line and column, from 1; `None` if the problem concerns the whole file.
    pub position: Option<(usize, usize)>,
    /// Description of the problem.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Kind of the cause.
    pub fault: Fault,
}

/// Whether a problem lies in the configuration or in a file that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A file is malformed or contradicts itself.
    Malformed,
    /// A file or folder is missing or cannot be read.
    Missing,
    /// The user lacks permission to read a file or folder.
    Permission,
}

impl From<&io::Error> for Fault {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission,
            // The file was read, but is not UTF-8.
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Missing,
        }
    }
}

impl Problem {
    pub(crate) fn of_file(file: &Path, message: impl fmt::Display) -> Self {
        Self {
            file: file.to_owned(),
            position: None,
            message: message.to_string(),
            hint: None,
            fault: Fault::Malformed,
        }
    }

    pub(crate) fn at(
        file: &Path,
        text: &Text,
        span: &Range<usize>,
        message: impl fmt::Display,
    ) -> Self {
        Self { position: Some(text.position(span.start)), ..Self::of_file(file, message) }
    }

    #[must_use]
    pub(crate) fn with_fault(mut self, fault: impl Into<Fault>) -> Self {
        self.fault = fault.into();
        self
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

/// Minimum distance in bytes between two positions whose line and column are stored.
const MARKED_EACH: usize = 256;

/// The text of a file. Looking up a line and column costs the same at every position, so that many
/// errors in a large file do not take longer than listing them.
pub(crate) struct Text {
    text: String,
    /// Positions, each [`MARKED_EACH`] bytes or a little more after the previous one.
    marks: Vec<Position>,
}

#[derive(Clone, Copy)]
struct Position {
    offset: usize,
    line: usize,
    column: usize,
}

impl Position {
    const START: Self = Self { offset: 0, line: 1, column: 1 };

    /// Returns the position after `text`, which begins here.
    fn after(self, text: &str) -> Self {
        text.chars().fold(self, |Self { offset, line, column }, char| match char {
            '\n' => Self { offset: offset + 1, line: line + 1, column: 1 },
            _ => Self { offset: offset + char.len_utf8(), line, column: column + 1 },
        })
    }
}

impl Text {
    pub(crate) fn new(text: String) -> Self {
        let mut marks = vec![Position::START];
        let mut last = Position::START;
        while last.offset + MARKED_EACH < text.len() {
            let next = text.ceil_char_boundary(last.offset + MARKED_EACH);
            last = last.after(&text[last.offset..next]);
            marks.push(last);
        }
        Self { text, marks }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let next = self.marks.partition_point(|mark| mark.offset <= offset);
        let mark = next
            .checked_sub(1)
            .and_then(|before| self.marks.get(before))
            .copied()
            .unwrap_or(Position::START);
        let Position { line, column, .. } = mark.after(&self.text[mark.offset..offset]);
        (line, column)
    }
}

/// Returns the most similar name, if any is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |other: &&str| strsim::damerau_levenshtein(name, other);
    let best = known.into_iter().min_by_key(likeness)?;
    (likeness(&best) <= 2.max(name.len() / 3)).then_some(best)
}

/// Returns the first line of a message. Some parse errors, such as for duplicate keys, have more,
/// but a problem is one line.
pub(crate) fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_counts_lines_and_characters() {
        let text = Text::new("a = 1\nß = \"x\"\n".to_owned());
        assert_eq!(text.position(0), (1, 1));
        assert_eq!(text.position(6), (2, 1));
        assert_eq!(text.position(9), (2, 3));
        assert_eq!(text.position(1000), (3, 1));
        assert_eq!(Text::new(String::new()).position(0), (1, 1));
    }

    #[test]
    fn position_is_found_from_the_mark_before_it() {
        let lines: Vec<_> =
            (0..500).map(|number| format!("{}ß\n", "x".repeat(number * 7 % 600))).collect();
        let text = Text::new(lines.concat());
        assert!(text.marks.windows(2).all(|pair| {
            (MARKED_EACH..MARKED_EACH + 4).contains(&(pair[1].offset - pair[0].offset))
        }));
        let mut expected = Position::START;
        for (offset, char) in text.as_str().char_indices() {
            assert_eq!(text.position(offset), (expected.line, expected.column));
            expected = expected.after(char.encode_utf8(&mut [0; 4]));
        }
    }

    #[test]
    fn nearest_is_silent_when_nothing_is_like_it() {
        assert_eq!(nearest("prox", ["files", "proxy"]), Some("proxy"));
        assert_eq!(nearest("zzzzzz", ["files", "proxy"]), None);
    }
}
