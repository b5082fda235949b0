//! What is wrong with a configuration, and where.

use std::fmt;
use std::io;
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
    /// Whose fault it is.
    pub fault: Fault,
}

/// Whether a configuration is wrong, or what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A file is malformed, or says what cannot be.
    Malformed,
    /// A file or folder is missing or cannot be read.
    Missing,
    /// This user may not read a file or folder.
    Permission,
}

impl From<&io::Error> for Fault {
    fn from(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission,
            // It was read, and is no UTF-8.
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Missing,
        }
    }
}

impl Problem {
    pub(crate) fn of_file(file: &Path, message: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), position: None, message: message.to_string(), hint: None, fault: Fault::Malformed }
    }

    pub(crate) fn at(file: &Path, text: &Text, span: &Range<usize>, message: impl fmt::Display) -> Self {
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

/// Bytes between two places of a text whose line and column are kept.
const MARKED_EACH: usize = 256;

/// The text of a file. A line and column costs the same wherever it is, so that many errors in a large file take no longer than to list them.
pub(crate) struct Text {
    text: String,
    /// Places [`MARKED_EACH`] bytes apart or a little more, in order.
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    offset: usize,
    line: usize,
    column: usize,
}

impl Mark {
    const START: Self = Self { offset: 0, line: 1, column: 1 };

    /// The place behind `text`, which begins here.
    fn after(self, text: &str) -> Self {
        text.chars().fold(self, |Self { offset, line, column }, char| match char {
            '\n' => Self { offset: offset + 1, line: line + 1, column: 1 },
            _ => Self { offset: offset + char.len_utf8(), line, column: column + 1 },
        })
    }
}

impl Text {
    pub(crate) fn new(text: String) -> Self {
        let mut marks = vec![Mark::START];
        let mut last = Mark::START;
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
        let mark = next.checked_sub(1).and_then(|before| self.marks.get(before)).copied().unwrap_or(Mark::START);
        let Mark { line, column, .. } = mark.after(&self.text[mark.offset..offset]);
        (line, column)
    }
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
        let text = Text::new("a = 1\nß = \"x\"\n".to_owned());
        assert_eq!(text.position(0), (1, 1));
        assert_eq!(text.position(6), (2, 1));
        assert_eq!(text.position(9), (2, 3));
        assert_eq!(text.position(1000), (3, 1));
        assert_eq!(Text::new(String::new()).position(0), (1, 1));
    }

    #[test]
    fn position_is_found_from_the_mark_before_it() {
        let lines: Vec<_> = (0..500).map(|number| format!("{}ß\n", "x".repeat(number * 7 % 600))).collect();
        let text = Text::new(lines.concat());
        assert!(text.marks.windows(2).all(|pair| (MARKED_EACH..MARKED_EACH + 4).contains(&(pair[1].offset - pair[0].offset))));
        let mut expected = Mark::START;
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
