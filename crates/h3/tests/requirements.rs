//! Whether each MUST of RFC 9114 is quoted where it is obeyed and where it is proved: `rfc9114.txt` is the list.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

const LIST: &str = include_str!("rfc9114.txt");

/// A sentence and where it stands, such as "RFC 9114 section 4.2".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Quote {
    source: String,
    text: String,
}

/// The sentences of the list, each with the reason why it is not quoted, if there is one.
fn requirements() -> BTreeMap<Quote, Option<&'static str>> {
    let mut requirements = BTreeMap::new();
    let mut section = "";
    let mut last = None;
    for line in LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("== ") {
            section = name;
        } else if let Some(reason) = line.strip_prefix("- ") {
            let sentence: Quote = last.take().expect("a reason follows its sentence");
            requirements.insert(sentence, Some(reason));
        } else {
            let sentence = Quote { source: format!("RFC 9114 {section}"), text: line.to_owned() };
            let earlier = requirements.insert(sentence.clone(), None);
            assert_eq!(earlier, None, "listed twice: {sentence:?}");
            last = Some(sentence);
        }
    }
    requirements
}

/// What is quoted in the sources: at code, and at tests.
#[derive(Default)]
struct Quoted {
    at_code: BTreeMap<Quote, PathBuf>,
    at_tests: BTreeMap<Quote, PathBuf>,
}

impl Quoted {
    fn here() -> Self {
        Self::read(Path::new(env!("CARGO_MANIFEST_DIR")))
    }

    fn read(package: &Path) -> Self {
        let mut quoted = Self::default();
        for path in rust_files(&package.join("src")) {
            let text = fs::read_to_string(&path).expect("a source can be read");
            let (code, tests) = text.split_once("#[cfg(test)]").unwrap_or((&text, ""));
            quoted.at_code.extend(quotes(code).map(|quote| (quote, path.clone())));
            quoted.at_tests.extend(quotes(tests).map(|quote| (quote, path.clone())));
        }
        for path in rust_files(&package.join("tests")) {
            let text = fs::read_to_string(&path).expect("a test can be read");
            quoted.at_tests.extend(quotes(&text).map(|quote| (quote, path.clone())));
        }
        assert!(!quoted.at_code.is_empty() && !quoted.at_tests.is_empty(), "the sources of {} have quotes", package.display());
        quoted
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is part of the package") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The quotes of a text: a line `//= source`, then lines `//# words`.
fn quotes(text: &str) -> impl Iterator<Item = Quote> {
    let mut quotes: Vec<Quote> = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(source) = line.strip_prefix("//= ") {
            quotes.push(Quote { source: source.trim_end().to_owned(), text: String::new() });
        } else if let Some(words) = line.strip_prefix("//# ") {
            let quote = quotes.last_mut().expect("the source of a quote stands before its words");
            for word in words.split_whitespace() {
                if !quote.text.is_empty() {
                    quote.text.push(' ');
                }
                quote.text.push_str(word);
            }
        }
    }
    quotes.into_iter()
}

fn has_keyword(text: &str) -> bool {
    text.contains("MUST")
}

fn report<'a>(problems: impl IntoIterator<Item = (&'a Quote, &'a str)>) {
    let lines: Vec<String> =
        problems.into_iter().map(|(quote, problem)| format!("{problem}\n    {}: {}", quote.source, quote.text)).collect();
    assert!(lines.is_empty(), "{} quotes are not as they should be\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn each_requirement_is_quoted_at_code_and_at_a_test() {
    let (requirements, quoted) = (requirements(), Quoted::here());
    assert!(requirements.len() > 120, "the list is whole");
    report(requirements.iter().filter_map(|(sentence, reason)| {
        match (reason, quoted.at_code.contains_key(sentence), quoted.at_tests.contains_key(sentence)) {
            (None, true, true) | (Some(_), false, _) | (Some(_), _, false) => None,
            (None, false, false) => Some((sentence, "quoted nowhere")),
            (None, false, true) => Some((sentence, "quoted at a test, but not at the code that obeys it")),
            (None, true, false) => Some((sentence, "quoted at code, but at no test that proves it")),
            (Some(_), true, true) => Some((sentence, "quoted in both places, so the reason in the list is out of date")),
        }
    }));
}

#[test]
fn quoted_requirements_are_in_the_words_of_the_rfc() {
    let (requirements, quoted) = (requirements(), Quoted::here());
    let all = quoted.at_code.keys().chain(quoted.at_tests.keys());
    let of_this_rfc: BTreeSet<&Quote> = all.filter(|quote| quote.source.starts_with("RFC 9114 ") && has_keyword(&quote.text)).collect();
    report(of_this_rfc.into_iter().filter(|quote| !requirements.contains_key(quote)).map(|quote| (quote, "not in the list")));
}

/// Quotes of other RFCs too, and those without a MUST. The other side of what is said of QPACK may stand in that crate.
#[test]
fn each_quote_stands_at_code_and_at_a_test() {
    let quoted = Quoted::here();
    let qpack = Quoted::read(&Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("qpack"));
    let without = |ours: &BTreeMap<Quote, PathBuf>, here: &BTreeMap<Quote, PathBuf>, there: &BTreeMap<Quote, PathBuf>| -> Vec<Quote> {
        ours.keys().filter(|quote| !here.contains_key(quote) && !there.contains_key(quote)).cloned().collect()
    };
    let only_code = without(&quoted.at_code, &quoted.at_tests, &qpack.at_tests);
    let only_tests = without(&quoted.at_tests, &quoted.at_code, &qpack.at_code);
    let only_code = only_code.iter().map(|quote| (quote, "at code, but at no test"));
    report(only_code.chain(only_tests.iter().map(|quote| (quote, "at a test, but not at code"))));
}
