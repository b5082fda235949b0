//! Routes and paths made from any bytes, out of the pieces that make paths ambiguous.

use super::Route;

/// Routes in order, and a path.
#[derive(Clone, Debug)]
pub struct Case {
    /// The routes; the first match answers.
    pub routes: Vec<Route>,
    /// The path as a client sent it.
    pub path: String,
}

/// Segments of patterns. There are few, so that paths often match.
const NAMES: [&str; 16] = [
    "a",
    "admin",
    "%61dmin",
    "@admin",
    "%40admin",
    "(x)",
    "%28x%29",
    "priv%c3%a9",
    "~u",
    "%7Eu",
    "a;x",
    "a%3Bx",
    "a%2Fb",
    "*",
    "%2A",
    "b",
];

/// Pieces of paths.
const PIECES: [&str; 48] = [
    "/",
    "/",
    "/",
    "/",
    "/",
    "/",
    "a",
    "admin",
    "/admin",
    "/admin/",
    "/@admin",
    "/%40admin",
    "/(x)",
    "/%28x%29",
    "/priv%c3%a9",
    "/priv%C3%A9",
    "/~u",
    "/%7eu",
    "/a;x",
    "/a%3bx",
    "%2F",
    "%2f",
    "%5C",
    "%5c",
    "\\",
    "..",
    ".",
    "%2e",
    "%2E%2e",
    "/..",
    "/.",
    "/..;",
    ";",
    ";x",
    "%3B",
    "//",
    "///",
    "b",
    "/b",
    "*",
    "%2A",
    "[",
    "\"",
    "%25",
    "%252F",
    "%",
    "%00",
    "%FF",
];

impl Case {
    /// Makes a case from any bytes.
    pub fn of(data: &[u8]) -> Self {
        let mut bytes = data.iter().copied();
        let mut next = || usize::from(bytes.next().unwrap_or_default());
        let routes = (0..=next() % 4).map(|_| {
            let compatible = next() % 2 == 0;
            let patterns = (0..=next() % 2).flat_map(|_| {
                let form = next();
                let path = (0..=form % 2)
                    .fold(String::new(), |path, _| path + "/" + NAMES[next() % NAMES.len()]);
                match form / 2 % 4 {
                    0 => vec![path],
                    1 => vec![format!("{path}/*")],
                    2 => vec!["/*".to_owned()],
                    _ => vec![format!("{path}/*"), path],
                }
            });
            Route { patterns: patterns.collect(), compatible }
        });
        let routes = routes.collect();
        let count = 1 + next() % 10;
        let path: String = (0..count).map(|_| PIECES[next() % PIECES.len()]).collect();
        let path = if path.starts_with(['/', '*']) { path } else { format!("/{path}") };
        Self { routes, path }
    }
}
