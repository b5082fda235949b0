//! Index of a site's routes: finds the route of a request in a time that hardly depends on the
//! number of routes.

use rustc_hash::FxHashMap;

use crate::config::{MatchTable, PathPattern};
use crate::routing::hosts::Hosts;

/// A condition of a route: the index of the route in its site, and of the condition in the route.
/// In ascending order, the first condition that holds decides.
pub(crate) type Condition = (u32, u32);

/// Index of the conditions of a site's routes, by host and path.
///
/// [`Self::find`] only tests conditions that match the request's host and path, so that only
/// methods and fields are left to compare.
#[derive(Debug, Default)]
pub(crate) struct RouteIndex {
    /// Conditions with hosts.
    by_host: Hosts<ByPath>,
    /// Conditions without hosts.
    any_host: ByPath,
}

/// Conditions by path, as a trie of the segments of their patterns.
#[derive(Debug, Default)]
struct ByPath {
    root: Node,
    /// Conditions without a path, which also match targets without one, such as `*`.
    any_path: Vec<Condition>,
}

/// A node of the trie: the patterns with a common prefix of segments.
#[derive(Debug, Default)]
struct Node {
    texts: FxHashMap<Box<str>, Node>,
    star: Option<Box<Node>>,
    /// Conditions of patterns that end here.
    closed: Vec<Condition>,
    /// Conditions of patterns with a trailing wildcard.
    open: Vec<Condition>,
}

impl RouteIndex {
    pub(crate) fn new<'a>(routes: impl Iterator<Item = &'a [MatchTable]>) -> Self {
        let mut index = Self::default();
        for (route, tables) in (0..).zip(routes) {
            for (number, table) in (0..).zip(tables) {
                for host in &table.host {
                    index.by_host.entry(host).insert(table, (route, number));
                }
                if table.host.is_empty() {
                    index.any_host.insert(table, (route, number));
                }
            }
        }
        index
    }

    /// Returns the first condition for the host and a reading of the path for which `holds` returns
    /// true.
    pub(crate) fn find(
        &self,
        host: &str,
        path: &str,
        holds: impl FnMut(Condition) -> bool,
    ) -> Option<Condition> {
        let mut search = Search { best: None, holds };
        if !self.by_host.is_empty() {
            self.by_host
                .each(host)
                .into_iter()
                .flatten()
                .for_each(|part| part.find(path, &mut search));
        }
        self.any_host.find(path, &mut search);
        search.best
    }

    /// Returns the first condition whose host and path may cover those of all of a condition's
    /// requests, and for which `covers` returns true.
    pub(crate) fn find_cover(
        &self,
        one: &MatchTable,
        covers: impl FnMut(Condition) -> bool,
    ) -> Option<Condition> {
        let mut search = Search { best: None, holds: covers };
        let by_host = one.host.first().and_then(|host| self.by_host.get(host));
        for part in by_host.into_iter().chain([&self.any_host]) {
            search.list(&part.any_path);
            match one.path.first() {
                Some(path) => part.root.covering(
                    &path.segments().collect::<Vec<_>>(),
                    path.is_open(),
                    &mut search,
                ),
                None => search.list(&part.root.open),
            }
        }
        search.best
    }
}

/// A search for the first condition that holds.
struct Search<F> {
    best: Option<Condition>,
    holds: F,
}

impl<F: FnMut(Condition) -> bool> Search<F> {
    /// Tests conditions in ascending order.
    fn list(&mut self, conditions: &[Condition]) {
        let better =
            conditions.iter().copied().take_while(|one| self.best.is_none_or(|best| *one < best));
        if let Some(found) = better.into_iter().find(|one| (self.holds)(*one)) {
            self.best = Some(found);
        }
    }
}

impl ByPath {
    fn find<F: FnMut(Condition) -> bool>(&self, path: &str, search: &mut Search<F>) {
        search.list(&self.any_path);
        if let Some(rest) = path.strip_prefix('/') {
            self.root.matching(Some(rest), search);
        }
    }

    fn insert(&mut self, table: &MatchTable, condition: Condition) {
        for path in &table.path {
            self.root.insert(path, condition);
        }
        if table.path.is_empty() {
            self.any_path.push(condition);
        }
    }
}

impl Node {
    fn insert(&mut self, path: &PathPattern, condition: Condition) {
        let node = path.segments().fold(self, |node, segment| match segment {
            Some(text) if node.texts.contains_key(text) => {
                node.texts.get_mut(text).expect("invariant: it is there")
            }
            Some(text) => node.texts.entry(text.into()).or_default(),
            None => node.star.get_or_insert_default(),
        });
        let list = if path.is_open() { &mut node.open } else { &mut node.closed };
        if list.last() != Some(&condition) {
            list.push(condition);
        }
    }

    /// Searches the conditions of patterns that match the rest of a path; `None` after its last
    /// segment.
    fn matching<F: FnMut(Condition) -> bool>(&self, rest: Option<&str>, search: &mut Search<F>) {
        let Some(rest) = rest else { return search.list(&self.closed) };
        search.list(&self.open);
        if self.texts.is_empty() && self.star.is_none() {
            return;
        }
        let (segment, rest) = match rest.split_once('/') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        if let Some(node) = self.texts.get(segment) {
            node.matching(rest, search);
        }
        if let Some(node) = self.star.as_ref().filter(|_| !segment.is_empty()) {
            node.matching(rest, search);
        }
    }

    /// Searches the conditions of patterns that cover the rest of a pattern, its `segments`.
    fn covering<F: FnMut(Condition) -> bool>(
        &self,
        segments: &[Option<&str>],
        is_open: bool,
        search: &mut Search<F>,
    ) {
        let Some((segment, rest)) = segments.split_first() else {
            return search.list(if is_open { &self.open } else { &self.closed });
        };
        search.list(&self.open);
        if let Some(node) = segment.and_then(|text| self.texts.get(text)) {
            node.covering(rest, is_open, search);
        }
        if let Some(node) = self.star.as_ref().filter(|_| *segment != Some("")) {
            node.covering(rest, is_open, search);
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method};
    use proptest::prelude::*;

    use super::*;

    fn table(paths: &[String], hosts: &[String], get: bool) -> MatchTable {
        let read = |text: &String| text.parse().expect("a pattern");
        let method = if get { vec!["GET".parse().expect("a method")] } else { Vec::new() };
        MatchTable {
            path: paths.iter().map(read).collect(),
            host: hosts.iter().map(|text| text.parse().expect("a host")).collect(),
            method,
            ..MatchTable::default()
        }
    }

    fn tables() -> impl Strategy<Value = Vec<Vec<MatchTable>>> {
        let path = "(/(a|b|\\*)){0,3}(/|/\\*|/a)";
        let host =
            prop::sample::select(vec!["x.test", "*.test", "*", "y.x.test"]).prop_map(str::to_owned);
        let one =
            (prop::collection::vec(path, 0..3), prop::collection::vec(host, 0..2), any::<bool>());
        let one = one.prop_map(|(paths, hosts, get)| table(&paths, &hosts, get));
        prop::collection::vec(prop::collection::vec(one, 1..3), 0..12)
    }

    proptest! {
        #[test]
        fn route_is_the_one_that_a_search_one_after_the_other_finds(
            routes in tables(),
            path in "(/(a|b|c|)){0,4}|\\*",
            host in prop::sample::select(vec!["x.test", "X.test", "z.test", "y.x.test", "other", ""]),
            get in any::<bool>(),
        ) {
            let (method, fields) = (if get { Method::GET } else { Method::PUT }, HeaderMap::new());
            let index = RouteIndex::new(routes.iter().map(|tables| &tables[..]));
            let holds = |(route, table): Condition| routes[route as usize][table as usize].is_for_any_path(&method, host, &fields);
            let found = index.find(host, &path, holds).map(|(route, _)| route as usize);
            let one_by_one = routes.iter().position(|tables| tables.iter().any(|one| one.is_for(&method, host, &path, &fields)));
            prop_assert_eq!(found, one_by_one);
        }

        #[test]
        fn cover_is_the_one_that_a_search_one_after_the_other_finds(routes in tables(), one in tables()) {
            let index = RouteIndex::new(routes.iter().map(|tables| &tables[..]));
            for one in one.iter().flatten() {
                let covers = |wide: &MatchTable| wide.covers(one);
                let found = index.find_cover(one, |(route, table)| covers(&routes[route as usize][table as usize]));
                let one_by_one = routes.iter().position(|tables| tables.iter().any(covers));
                prop_assert_eq!(found.map(|(route, _)| route as usize), one_by_one);
            }
        }
    }
}
