//! Selects the handler of a request by specificity, not by the order of registration.
//!
//! A pattern is a list of segments between slashes. For each segment of the path, a static segment
//! comes before a parameter (`:name`, any segment that is not empty), and a parameter before a
//! wildcard (`*`, the rest, which may be empty). Routes of the request's own method come before
//! those of any method. A handler may yield to the next match.

use http::Method;
use smallvec::SmallVec;

/// Maximum number of segments of a path; a longer one matches only a wildcard within this depth.
const MAX_SEGMENTS: usize = 100;

/// Byte ranges of the parameters in the path.
pub(crate) type Parameters = SmallVec<[(u32, u32); 4]>;

/// The routes of one host name of an application.
#[derive(Default)]
pub(crate) struct Router {
    methods: Vec<(Method, Node)>,
    any: Node,
}

#[derive(Default)]
struct Node {
    /// Sorted by name.
    statics: Vec<(Box<str>, Node)>,
    parameter: Option<Box<Node>>,
    wildcard: Option<u32>,
    handler: Option<u32>,
}

/// A search for the match after those to skip.
struct Search<'a> {
    path: &'a str,
    skip: usize,
    parameters: Parameters,
}

impl Router {
    /// Sets the handler of a pattern and method, replacing an earlier one. `method`: `None` for
    /// any.
    ///
    /// Parameter names do not matter: `/:a` and `/:b` are the same pattern. `None` as handler
    /// removes the route.
    pub(crate) fn set(&mut self, method: Option<Method>, pattern: &str, handler: Option<u32>) {
        let mut node = match method {
            None => &mut self.any,
            Some(method) => {
                let index =
                    self.methods.iter().position(|(known, _)| *known == method).unwrap_or_else(
                        || {
                            self.methods.push((method, Node::default()));
                            self.methods.len() - 1
                        },
                    );
                &mut self.methods[index].1
            }
        };
        for segment in segments(pattern) {
            node = match segment.as_bytes() {
                b"*" => {
                    node.wildcard = handler;
                    return;
                }
                [b':', ..] => &mut **node.parameter.get_or_insert_default(),
                _ => {
                    let index =
                        match node.statics.binary_search_by(|(name, _)| (**name).cmp(segment)) {
                            Ok(index) => index,
                            Err(index) => {
                                node.statics.insert(index, (segment.into(), Node::default()));
                                index
                            }
                        };
                    &mut node.statics[index].1
                }
            };
        }
        node.handler = handler;
    }

    /// Returns the handler of match number `skip`, counted from 0, and its parameters. `skip`
    /// becomes the number of matches left to skip.
    pub(crate) fn find(
        &self,
        method: &Method,
        path: &str,
        skip: &mut usize,
    ) -> Option<(u32, Parameters)> {
        let mut search = Search { path, skip: *skip, parameters: Parameters::new() };
        let own = self.methods.iter().find(|(known, _)| known == method).map(|(_, node)| node);
        let handler =
            own.into_iter().chain([&self.any]).find_map(|node| node.find(&mut search, 0, 0));
        *skip = search.skip;
        Some((handler?, search.parameters))
    }
}

impl Node {
    /// Searches below this node. `at`: start of the rest of the path, at its slash. `depth`: number
    /// of segments before it.
    fn find(&self, search: &mut Search<'_>, at: usize, depth: usize) -> Option<u32> {
        if at >= search.path.len() {
            return self.handler.and_then(|handler| search.take(handler));
        }
        if depth >= MAX_SEGMENTS {
            return None;
        }
        let path = search.path;
        let begin = at + 1;
        let end = path[begin..].find('/').map_or(path.len(), |slash| begin + slash);
        let segment = &path[begin..end];
        let found = self.statics.binary_search_by(|(name, _)| (**name).cmp(segment)).ok();
        if let Some(handler) =
            found.and_then(|index| self.statics[index].1.find(search, end, depth + 1))
        {
            return Some(handler);
        }
        if let Some(parameter) = self.parameter.as_ref().filter(|_| begin < end) {
            search.parameters.push((begin as u32, end as u32));
            if let Some(handler) = parameter.find(search, end, depth + 1) {
                return Some(handler);
            }
            search.parameters.pop();
        }
        self.wildcard.and_then(|handler| search.take(handler))
    }
}

impl Search<'_> {
    fn take(&mut self, handler: u32) -> Option<u32> {
        if self.skip == 0 {
            return Some(handler);
        }
        self.skip -= 1;
        None
    }
}

/// Returns the segments of a pattern.
fn segments(pattern: &str) -> impl Iterator<Item = &str> {
    pattern.strip_prefix('/').unwrap_or(pattern).split('/')
}

/// Returns the parameter names of a pattern, in order.
pub(crate) fn parameter_names(pattern: &str) -> impl Iterator<Item = &str> {
    segments(pattern).filter_map(|segment| segment.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Routes, method and path of a request, and the routes that match it.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a [u32]);

    const ANY: &str = "*";

    fn router(routes: &[(&str, &str)]) -> Router {
        let mut router = Router::default();
        for (index, (method, pattern)) in routes.iter().enumerate() {
            let method = (*method != ANY).then(|| method.parse().unwrap());
            router.set(method, pattern, Some(index as u32));
        }
        router
    }

    /// Returns the numbers of all matching routes, the best first.
    fn all(router: &Router, method: &str, path: &str) -> Vec<u32> {
        let method = method.parse().unwrap();
        (0..)
            .map_while(|mut skip| router.find(&method, path, &mut skip))
            .map(|(handler, _)| handler)
            .collect()
    }

    #[test]
    fn matches_come_in_the_order_of_their_specificity() {
        let methods: &[_] =
            &[(ANY, "/static/route"), ("PATCH", "/static/route"), ("GET", "/static/route")];
        let patterns: &[_] = &[
            (ANY, "/a/b/c"),
            ("GET", "/a/:b/c"),
            ("GET", "/a/*"),
            ("GET", "/a/b/c"),
            ("POST", "/a/:b/c"),
            (ANY, "/a/:b/c"),
        ];
        let slashes: &[_] = &[("GET", "/foo//////bar/baz/qux"), ("GET", "/foo")];
        let candy: &[_] = &[
            ("GET", "/candy/:kind/*"),
            ("GET", "/candy/lollipop/*"),
            ("GET", "/candy/:kind/:action"),
            ("GET", "/candy/lollipop/:action"),
            ("GET", "/candy/lollipop/eat"),
        ];
        let cases: &[Case<'_>] = &[
            (methods, "NONSENSE", "/static/route", &[0]),
            (methods, "GET", "/static", &[]),
            (methods, "POST", "/static/route", &[0]),
            (methods, "GET", "/static/route", &[2, 0]),
            (methods, "PATCH", "/static/route", &[1, 0]),
            (patterns, "POST", "/a/b/c", &[4, 0, 5]),
            (patterns, "GET", "/a/b/c", &[3, 1, 2, 0, 5]),
            (slashes, "GET", "/foo", &[1]),
            (slashes, "GET", "/foo/", &[]),
            (slashes, "GET", "/foo//bar/baz/qux", &[]),
            (slashes, "GET", "/foo//////bar/baz/qux", &[0]),
            (&[("GET", "/test/*")], "GET", "/test/", &[0]),
            (&[("GET", "/test/*")], "GET", "/test", &[]),
            (&[("GET", "/foo"), ("GET", "/:id"), ("GET", "/1ab")], "GET", "/1ab", &[2, 1]),
            (&[("GET", "/*"), ("GET", "/")], "GET", "/", &[1, 0]),
            (&[("GET", "/:id")], "GET", "/", &[]),
            (&[("GET", "/*")], "GET", "/a/b/", &[0]),
            (&[("GET", "/a/*b")], "GET", "/a/*b", &[0]),
            (candy, "GET", "/candy/lollipop/eat", &[4, 3, 1, 2, 0]),
            (candy, "GET", "/candy/lollipop/", &[1, 0]),
            (candy, "GET", "/candy/lollipop", &[]),
            (candy, "GET", "/candy/", &[]),
            (&[("GET", "/:a/x"), ("GET", "/:b/x")], "GET", "/1/x", &[1]),
        ];
        for (routes, method, path, expected) in cases {
            assert_eq!(
                all(&router(routes), method, path),
                *expected,
                "{method} {path} of {routes:?}"
            );
        }
    }

    #[test]
    fn parameters_are_those_of_the_route_that_matched() {
        let router = router(&[
            ("GET", "/candy/:kind/*"),
            ("GET", "/candy/lollipop/*"),
            ("GET", "/candy/:kind/:action"),
        ]);
        let path = "/candy/lollipop/eat";
        let values = |mut skip| {
            let (_, parameters) = router.find(&Method::GET, path, &mut skip).unwrap();
            parameters
                .iter()
                .map(|(begin, end)| &path[*begin as usize..*end as usize])
                .collect::<Vec<_>>()
        };
        assert_eq!(
            [values(0), values(1), values(2)],
            [vec![], vec!["lollipop", "eat"], vec!["lollipop"]]
        );
        assert_eq!(
            parameter_names("/candy/:kind/x/:action").collect::<Vec<_>>(),
            ["kind", "action"]
        );
    }

    #[test]
    fn path_of_too_many_segments_matches_nothing() {
        let router =
            router(&[("GET", "/*"), ("GET", &"/:s".repeat(100)), ("GET", &"/:s".repeat(101))]);
        assert_eq!(all(&router, "GET", &"/x".repeat(100)), [1, 0]);
        assert_eq!(all(&router, "GET", &"/x".repeat(101)), [0]);
    }

    #[test]
    fn removed_route_matches_no_more() {
        let mut router = router(&[("GET", "/a"), ("GET", "/*")]);
        router.set(Some(Method::GET), "/a", None);
        assert_eq!(all(&router, "GET", "/a"), [1]);
    }
}
