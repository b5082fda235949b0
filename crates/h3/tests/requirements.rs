//! Checks that each MUST of RFC 9114 and RFC 9204 is quoted at the code that obeys it and at a test
//! that proves it. The lists are `rfc9114.txt` and `rfc9204.txt`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The RFCs and their lists of sentences.
const LISTS: [(&str, &str); 2] =
    [("RFC 9114", include_str!("rfc9114.txt")), ("RFC 9204", include_str!("rfc9204.txt"))];

/// Other quotes that need no test, with the reason.
const WITHOUT_TEST: [(&str, &str); 1] = [(
    "The sender MUST NOT close either of these streams, and the receiver MUST NOT request that \
        the sender close either of these streams.",
    "the engine keeps the streams open, and no function here requests their closure",
)];

/// A sentence and its source, such as "RFC 9114 section 4.2".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Quote {
    source: String,
    text: String,
}

/// Returns the sentences of the lists, each with the reason why it is not quoted, if any.
fn requirements() -> BTreeMap<Quote, Option<&'static str>> {
    let mut requirements = BTreeMap::new();
    for (rfc, list) in LISTS {
        let mut section = "";
        let mut last = None;
        for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix("== ") {
                section = name;
            } else if let Some(reason) = line.strip_prefix("- ") {
                let sentence: Quote = last.take().expect("a sentence precedes each reason");
                requirements.insert(sentence, Some(reason));
            } else {
                let sentence = Quote { source: format!("{rfc} {section}"), text: line.to_owned() };
                let earlier = requirements.insert(sentence.clone(), None);
                assert_eq!(earlier, None, "listed twice: {sentence:?}");
                last = Some(sentence);
            }
        }
    }
    requirements
}

/// Quotes in the sources, at code and at tests.
#[derive(Default)]
struct Quoted {
    at_code: BTreeSet<Quote>,
    at_tests: BTreeSet<Quote>,
}

impl Quoted {
    fn here() -> Self {
        Self::of_crate("h3")
    }

    /// Returns the quotes of this crate and of `qpack`, which obeys most of RFC 9204.
    fn here_and_in_qpack() -> Self {
        let (mut quoted, qpack) = (Self::here(), Self::of_crate("qpack"));
        quoted.at_code.extend(qpack.at_code);
        quoted.at_tests.extend(qpack.at_tests);
        quoted
    }

    /// Returns the quotes of the engine and of its end-to-end tests.
    fn of_engine() -> Self {
        let mut quoted = Self::of_crate("engine");
        for path in files(&crates().with_file_name("tests"), "py") {
            quoted.at_tests.extend(quotes(&read(&path)));
        }
        quoted
    }

    fn of_crate(name: &str) -> Self {
        let package = crates().join(name);
        let mut quoted = Self::default();
        for path in files(&package.join("src"), "rs") {
            let text = read(&path);
            let is_test = path.ends_with("tests.rs");
            let (code, tests) = if is_test {
                ("", &*text)
            } else {
                text.split_once("#[cfg(test)]\nmod tests").unwrap_or((&text, ""))
            };
            quoted.at_code.extend(quotes(code));
            quoted.at_tests.extend(quotes(tests));
        }
        for path in files(&package.join("tests"), "rs") {
            quoted.at_tests.extend(quotes(&read(&path)));
        }
        quoted
    }

    fn all(&self) -> impl Iterator<Item = &Quote> {
        self.at_code.union(&self.at_tests)
    }
}

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the crates folder")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|its| its == extension) {
            found.push(path);
        }
    }
    found
}

/// Returns the quotes of a text: a line `//= source`, then lines `//# words`. In Python, each is
/// preceded by "# ".
fn quotes(text: &str) -> impl Iterator<Item = Quote> {
    let mut quotes: Vec<Quote> = Vec::new();
    for line in
        text.lines().map(str::trim_start).map(|line| line.strip_prefix("# ").unwrap_or(line))
    {
        if let Some(source) = line.strip_prefix("//= ") {
            quotes.push(Quote { source: source.trim_end().to_owned(), text: String::new() });
        } else if let Some(words) = line.strip_prefix("//# ") {
            let quote = quotes.last_mut().expect("a source line precedes each quote");
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
    let lines: Vec<String> = problems
        .into_iter()
        .map(|(quote, problem)| format!("{problem}\n    {}: {}", quote.source, quote.text))
        .collect();
    assert!(lines.is_empty(), "{} quotes are missing or wrong\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn each_requirement_is_quoted_at_code_and_at_a_test() {
    let (requirements, here, engine) =
        (requirements(), Quoted::here_and_in_qpack(), Quoted::of_engine());
    assert!(requirements.len() > 150, "the lists are complete");
    report(requirements.iter().filter_map(|(sentence, reason)| {
        let is_the_engines = reason.is_some_and(|reason| reason.starts_with("engine:"));
        let quoted = if is_the_engines { &engine } else { &here };
        let problem = match (quoted.at_code.contains(sentence), quoted.at_tests.contains(sentence))
        {
            (true, true) if reason.is_some() && !is_the_engines => {
                "quoted at code and test, so the reason in the list is outdated"
            }
            (true, true) => return None,
            _ if reason.is_some() && !is_the_engines => return None,
            (false, false) => "quoted nowhere",
            (false, true) => "quoted at a test, but not at code",
            (true, false) => "quoted at code, but not at a test",
        };
        Some((sentence, problem))
    }));
}

#[test]
fn quoted_requirements_match_their_rfc() {
    let (requirements, here, engine) =
        (requirements(), Quoted::here_and_in_qpack(), Quoted::of_engine());
    let is_listed =
        |quote: &Quote| LISTS.iter().any(|(rfc, _)| quote.source.starts_with(&format!("{rfc} ")));
    let of_these_rfcs: BTreeSet<&Quote> = here
        .all()
        .chain(engine.all())
        .filter(|quote| is_listed(quote) && has_keyword(&quote.text))
        .collect();
    report(
        of_these_rfcs
            .into_iter()
            .filter(|quote| !requirements.contains_key(quote))
            .map(|quote| (quote, "not in the list")),
    );
}

/// Includes quotes of other RFCs and those without a MUST. For quotes about QPACK, the code or the
/// test may be in that crate.
#[test]
fn each_quote_is_at_code_and_at_a_test() {
    let (here, qpack) = (Quoted::here(), Quoted::of_crate("qpack"));
    assert!(here.at_code.len() > 80, "the sources contain quotes");
    let is_excused = |quote: &Quote| WITHOUT_TEST.iter().any(|(text, _)| quote.text == *text);
    let only_code = here
        .at_code
        .iter()
        .filter(|quote| !here.at_tests.contains(quote) && !qpack.at_tests.contains(quote));
    let only_code = only_code.filter(|quote| !is_excused(quote));
    let only_tests = here
        .at_tests
        .iter()
        .filter(|quote| !here.at_code.contains(quote) && !qpack.at_code.contains(quote));
    let only_code = only_code.map(|quote| (quote, "at code, but not at a test"));
    report(only_code.chain(only_tests.map(|quote| (quote, "at a test, but not at code"))));
}
