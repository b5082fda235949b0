//! Models of how other servers interpret a path, each in a few independent lines, and a comparison
//! of a gateway's routes with them.
//!
//! For the property test and the fuzz target: [`Case::of`] makes routes and a path from any bytes,
//! [`Case::check`] panics where the matched route differs from the route of a server's
//! interpretation.

mod generated;
mod servers;

pub use generated::Case;
use servers::{SERVERS, Segments, decode_all, merge};

use crate::{Pattern, Spelling, without_segments};

/// A route: its patterns, and whether it accepts paths with encoded slashes.
#[derive(Clone, Debug)]
pub struct Route {
    /// Patterns as in a configuration.
    pub patterns: Vec<String>,
    /// Whether `paths = "compatible"` is set.
    pub compatible: bool,
}

/// The result for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The path is answered 400.
    Refused,
    /// No route matches.
    Unrouted,
    /// The route with this index matches.
    Routed(usize),
}

impl Case {
    /// Applies the gateway's rules and each server's model, and compares them.
    pub fn check(&self) -> Outcome {
        let routes: Vec<Vec<Pattern>> = self
            .routes
            .iter()
            .map(|route| {
                route.patterns.iter().filter_map(|text| Pattern::parse(text).ok()).collect()
            })
            .collect();
        let find = |reading: &str| {
            routes
                .iter()
                .position(|patterns| patterns.iter().any(|pattern| pattern.matches(reading)))
        };
        let Ok(spelling) = Spelling::of(&self.path) else { return Outcome::Refused };
        let meant: Vec<Vec<Meant>> = self
            .routes
            .iter()
            .map(|route| route.patterns.iter().map(|text| Meant::of(text)).collect())
            .collect();
        // The intended route of a path without escapes.
        let route_of = |path: &Segments| {
            meant.iter().position(|patterns| patterns.iter().any(|pattern| pattern.is_for(path)))
        };
        let (passed, literal) = match &spelling {
            None => (&*self.path, &*self.path),
            Some(spelling) => (spelling.passed(), spelling.literal()),
        };
        let found = match &spelling {
            None => find(literal),
            Some(spelling) => match spelling.agreed(find) {
                Ok(found) => found,
                Err(_) => return Outcome::Refused,
            },
        };
        let is_compatible = found.is_some_and(|number| self.routes[number].compatible);
        if !is_compatible && spelling.as_ref().is_some_and(|spelling| spelling.has_separators()) {
            return Outcome::Refused;
        }
        assert!(passed.starts_with('/') && !passed.starts_with("//"), "{self:?}");
        for (name, server) in SERVERS {
            if let Some(understood) = server(passed) {
                assert_eq!(
                    route_of(&merge(understood)),
                    found,
                    "{name} takes {passed:?} for that: {self:?}"
                );
            }
        }
        let Some(number) = found else { return Outcome::Unrouted };
        let prefix = routes[number]
            .iter()
            .find(|pattern| pattern.matches(literal))
            .map_or("", Pattern::prefix);
        if literal.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')) {
            let taken: Segments =
                prefix.split('/').skip(1).map(|segment| decode_all(segment.as_bytes())).collect();
            let passed = without_segments(passed, taken.len());
            assert!(passed.starts_with('/') && !passed.starts_with("//"), "{self:?}");
            for (name, server) in SERVERS {
                if let Some(understood) = server(passed) {
                    let whole = taken.iter().cloned().chain(merge(understood)).collect();
                    assert_eq!(
                        route_of(&whole),
                        found,
                        "{name} takes {passed:?} below {prefix:?} for that: {self:?}"
                    );
                }
            }
        }
        Outcome::Routed(number)
    }
}

/// The intended meaning of a pattern. The patterns here are valid and have no dots.
struct Meant {
    /// Decoded segments; `None` for a star.
    segments: Vec<Option<Vec<u8>>>,
    is_open: bool,
}

impl Meant {
    fn of(pattern: &str) -> Self {
        let decoded = |segment: &str| (segment != "*").then(|| decode_all(segment.as_bytes()));
        let mut segments: Vec<_> = pattern.split('/').skip(1).map(decoded).collect();
        let is_open = segments.pop_if(|last| last.is_none()).is_some();
        Self { segments, is_open }
    }

    fn is_for(&self, path: &Segments) -> bool {
        let fixed = self.segments.len();
        (if self.is_open { path.len() > fixed } else { path.len() == fixed })
            && self.segments.iter().zip(path).all(|(wanted, given)| {
                wanted.as_ref().map_or(!given.is_empty(), |wanted| wanted == given)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::servers::joined;
    use super::*;

    #[test]
    fn models_match_known_server_behavior() {
        let understood = |name: &str, path: &str| {
            let (_, server) = SERVERS.iter().find(|(known, _)| *known == name).expect("a server");
            server(path)
                .map(|segments| String::from_utf8_lossy(&joined(&merge(segments))).into_owned())
        };
        for (name, path, wanted) in [
            ("WSGI", "/admin%2Fx", Some("/admin/x")),
            ("Node.js, by segments", "/admin%2Fx", Some("/admin/x")),
            ("Node.js, by URL", "//evil/admin", Some("/admin")),
            ("Node.js, by URL", "/a\\..\\admin", Some("/admin")),
            ("nginx", "/a//../admin", Some("/admin")),
            ("Tomcat", "/x/..;y/admin;z", Some("/admin")),
            ("Tomcat", "/x%2Fy", None),
            ("files", "/a%2Fb", None),
            ("IIS", "/a%5Cb", Some("/a/b")),
        ] {
            assert_eq!(understood(name, path).as_deref(), wanted, "{name} {path}");
        }
    }

    #[test]
    fn cases_reach_each_outcome() {
        let mut counts = [0; 3];
        for_each_case(20_000, |outcome| {
            counts[match outcome {
                Outcome::Refused => 0,
                Outcome::Unrouted => 1,
                Outcome::Routed(_) => 2,
            }] += 1;
        });
        assert!(counts.iter().all(|count| *count > 1_000), "refused, unrouted, routed: {counts:?}");
    }

    /// `PRONGHORN_TARGET_CASES=n` sets the number of cases.
    #[test]
    #[ignore = "takes minutes: ten million cases"]
    fn matched_route_is_the_route_that_servers_understand_at_length() {
        let cases = std::env::var("PRONGHORN_TARGET_CASES")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(10_000_000);
        let mut routed = 0_u64;
        for_each_case(cases, |outcome| routed += u64::from(matches!(outcome, Outcome::Routed(_))));
        eprintln!("{cases} cases, {routed} of them routed");
    }

    /// Runs cases of random bytes from a fixed seed.
    fn for_each_case(cases: u64, mut take: impl FnMut(Outcome)) {
        let (mut state, mut bytes) = (0x9e37_79b9_7f4a_7c15_u64, [0_u8; 64]);
        for _ in 0..cases {
            for word in bytes.chunks_exact_mut(8) {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            take(Case::of(&bytes).check());
        }
    }

    proptest! {
        #[test]
        fn matched_route_is_the_route_that_servers_understand(bytes in vec(any::<u8>(), 0..64)) {
            Case::of(&bytes).check();
        }
    }
}
