//! Selection of the recorded response for a request.

use std::collections::HashMap;

use http::{Method, Uri};

/// Recorded requests by host and path.
///
/// A request gets the response recorded for its method, host, path and query. If the query was not
/// recorded, for example because it contains a time or a random number, the nearest recorded query
/// of the same path is used: the one with the most parameters in common, then the most parameter
/// names in common, then the fewest parameters that the request does not have. Scheme and port
/// break ties, since a replay listens on any free port, and finally the first recorded request
/// wins.
#[derive(Default)]
pub(crate) struct Index {
    hosts: HashMap<String, HashMap<String, Vec<Known>>>,
}

struct Known {
    number: usize,
    method: Method,
    query: Option<String>,
    /// Whether the scheme is https, and the port, the default one filled in.
    scheme_and_port: (bool, u16),
}

impl Index {
    /// Adds the request of entry `number`.
    pub(crate) fn insert(&mut self, number: usize, method: &Method, url: &Uri) {
        let known = Known {
            number,
            method: method.clone(),
            query: url.query().map(str::to_owned),
            scheme_and_port: scheme_and_port(url),
        };
        let paths = self.hosts.entry(host(url)).or_default();
        paths.entry(url.path().to_owned()).or_default().push(known);
    }

    /// Returns the number of the entry for a request. Entries for GET also answer HEAD.
    pub(crate) fn find(&self, method: &Method, url: &Uri) -> Option<usize> {
        let known = self.hosts.get(&host(url))?.get(url.path())?;
        let nearest = |method: &Method| {
            let alike = known.iter().filter(|each| each.method == *method);
            // `max_by_key` returns the last of equal elements, so the order is reversed.
            alike.rev().max_by_key(|each| each.nearness(url)).map(|each| each.number)
        };
        nearest(method).or_else(|| nearest(&Method::GET).filter(|_| method == Method::HEAD))
    }

    /// Returns whether the recording has the host.
    pub(crate) fn has_host(&self, url: &Uri) -> bool {
        self.hosts.contains_key(&host(url))
    }

    /// Returns the hosts, in alphabetical order.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<_> = self.hosts.keys().map(String::as_str).collect();
        hosts.sort_unstable();
        hosts
    }
}

impl Known {
    /// Returns a sort key: larger is nearer.
    fn nearness(&self, url: &Uri) -> (bool, usize, usize, isize, bool) {
        let (own, asked) = (parameters(self.query.as_deref()), parameters(url.query()));
        let common = own.iter().filter(|each| asked.contains(each)).count();
        let common_names =
            own.iter().filter(|(name, _)| asked.iter().any(|(other, _)| name == other)).count();
        let foreign = own.len() - common_names;
        (
            self.query.as_deref() == url.query(),
            common,
            common_names,
            -foreign.cast_signed(),
            self.scheme_and_port == scheme_and_port(url),
        )
    }
}

fn parameters(query: Option<&str>) -> Vec<(&str, &str)> {
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect()
}

fn host(url: &Uri) -> String {
    url.host().unwrap_or_default().to_ascii_lowercase()
}

fn scheme_and_port(url: &Uri) -> (bool, u16) {
    let secure = url.scheme_str() != Some("http");
    (secure, url.port_u16().unwrap_or(if secure { 443 } else { 80 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(requests: &[(&str, &str)]) -> Index {
        let mut index = Index::default();
        for (number, (method, url)) in requests.iter().enumerate() {
            index.insert(number, &method.parse().expect("a method"), &url.parse().expect("a URL"));
        }
        index
    }

    fn get(index: &Index, url: &str) -> Option<usize> {
        index.find(&Method::GET, &url.parse().expect("a URL"))
    }

    #[test]
    fn same_path_of_two_hosts_is_two_responses() {
        let index = index(&[("GET", "https://a.test/x"), ("GET", "https://b.test/x")]);
        assert_eq!(get(&index, "https://a.test:8443/x"), Some(0));
        assert_eq!(get(&index, "https://B.test:8443/x"), Some(1));
        assert_eq!(get(&index, "https://c.test/x"), None);
        assert_eq!(get(&index, "https://a.test/y"), None);
        assert_eq!(index.hosts(), ["a.test", "b.test"]);
    }

    #[test]
    fn method_has_to_be_the_same_but_for_head() {
        let index = index(&[("POST", "https://a.test/form"), ("GET", "https://a.test/page")]);
        assert_eq!(get(&index, "https://a.test/form"), None);
        assert_eq!(index.find(&Method::POST, &Uri::from_static("https://a.test/form")), Some(0));
        assert_eq!(index.find(&Method::HEAD, &Uri::from_static("https://a.test/page")), Some(1));
        assert_eq!(index.find(&Method::HEAD, &Uri::from_static("https://a.test/form")), None);
    }

    #[test]
    fn unknown_query_gets_the_nearest_one() {
        let index = index(&[
            ("GET", "https://a.test/x?page=1&t=100"),
            ("GET", "https://a.test/x?page=2&t=100"),
            ("GET", "https://a.test/x?page=2&t=100&debug=1"),
            ("GET", "https://a.test/x"),
        ]);
        assert_eq!(get(&index, "https://a.test/x?page=2&t=100&debug=1"), Some(2));
        assert_eq!(get(&index, "https://a.test/x?page=2&t=999"), Some(1));
        assert_eq!(get(&index, "https://a.test/x?page=9&t=999"), Some(0));
        assert_eq!(get(&index, "https://a.test/x?other"), Some(3));
        assert_eq!(get(&index, "https://a.test/x"), Some(3));
    }

    #[test]
    fn scheme_and_port_decide_between_equals_and_else_the_first() {
        let index = index(&[
            ("GET", "https://a.test/"),
            ("GET", "http://a.test/"),
            ("GET", "https://a.test:444/"),
        ]);
        assert_eq!(get(&index, "http://a.test/"), Some(1));
        assert_eq!(get(&index, "https://a.test/"), Some(0));
        assert_eq!(get(&index, "https://a.test:444/"), Some(2));
        assert_eq!(get(&index, "https://a.test:8443/"), Some(0));
    }
}
