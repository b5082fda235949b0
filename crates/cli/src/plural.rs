//! Counts with their nouns.

use std::fmt::Display;

/// Formats `1 site`, `2 sites`: for nouns with a plural in s.
pub(crate) fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_the_rest_plural() {
        assert_eq!(
            [0, 1, 2, 11].map(|count| counted(count, "site")),
            ["0 sites", "1 site", "2 sites", "11 sites"]
        );
    }
}
