//! Conditions that select a route's requests.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderMap, Method as HttpMethod};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::patterns::{HostPattern, PathPattern};
use super::short_form::{ShortForm, short_or_table};
use super::values::{FieldName, Method};

/// Requests that a route matches: a path, a table whose conditions must all hold, or a list of
/// these, of which one must match.
#[derive(Clone, Debug, PartialEq)]
pub struct Match(pub Vec<MatchTable>);

impl Default for Match {
    /// Matches all requests.
    fn default() -> Self {
        Self(vec![MatchTable::default()])
    }
}

/// Conditions of a route.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct MatchTable {
    /// Paths, of which one must match.
    #[serde(deserialize_with = "super::short_form::one_or_more")]
    #[schemars(with = "super::short_form::OneOrMore<PathPattern>")]
    pub path: Vec<PathPattern>,
    /// Methods, of which one must match. GET includes HEAD.
    #[serde(deserialize_with = "super::short_form::one_or_more")]
    #[schemars(with = "super::short_form::OneOrMore<Method>")]
    pub method: Vec<Method>,
    /// Host names, of which one must match.
    #[serde(deserialize_with = "super::short_form::one_or_more")]
    #[schemars(with = "super::short_form::OneOrMore<HostPattern>")]
    pub host: Vec<HostPattern>,
    /// Header fields and their values; `*` matches any value.
    pub header: BTreeMap<FieldName, String>,
}

impl MatchTable {
    /// Returns whether a request matches. `path` is one reading of its path.
    pub(crate) fn is_for(
        &self,
        method: &HttpMethod,
        host: &str,
        path: &str,
        headers: &HeaderMap,
    ) -> bool {
        (self.path.is_empty() || self.path.iter().any(|pattern| pattern.matches(path)))
            && self.is_for_any_path(method, host, headers)
    }

    /// Like [`MatchTable::is_for`], without the path.
    pub(crate) fn is_for_any_path(
        &self,
        method: &HttpMethod,
        host: &str,
        headers: &HeaderMap,
    ) -> bool {
        let Self { method: methods, host: hosts, header, .. } = self;
        let is_method = |one: &Method| {
            one.0 == *method || (one.0 == HttpMethod::GET && *method == HttpMethod::HEAD)
        };
        (methods.is_empty() || methods.iter().any(is_method))
            && (hosts.is_empty() || hosts.iter().any(|pattern| pattern.matches(host)))
            && header.iter().all(|(name, value)| {
                headers
                    .get_all(name.name())
                    .iter()
                    .any(|line| value == "*" || line == value.as_str())
            })
    }

    /// Returns whether every request that `other` matches is matched by this too. Returns `false`
    /// if in doubt.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let is_any = |path: &PathPattern| path.is_open() && path.segments().next().is_none();
        let paths = self.path.is_empty()
            || (other.path.is_empty() && self.path.iter().any(is_any))
            || (!other.path.is_empty()
                && other.path.iter().all(|path| self.path.iter().any(|wide| wide.covers(path))));
        let methods = self.method.is_empty()
            || (!other.method.is_empty()
                && other.method.iter().all(|method| self.method.contains(method)));
        let hosts = self.host.is_empty()
            || (!other.host.is_empty() && other.host.iter().all(|host| self.host.contains(host)));
        let headers = self.header.iter().all(|(name, value)| other.header.get(name) == Some(value));
        paths && methods && hosts && headers
    }

    fn has_only_paths(&self) -> bool {
        !self.path.is_empty()
            && self.method.is_empty()
            && self.host.is_empty()
            && self.header.is_empty()
    }
}

impl Match {
    /// Returns the paths of all conditions.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathPattern> {
        self.0.iter().flat_map(|one| &one.path)
    }

    /// Builds a match from a list. Consecutive paths are merged into one condition.
    fn of(list: Vec<MatchEntry>) -> Self {
        let mut joined: Vec<MatchTable> = Vec::new();
        for MatchEntry(mut table) in list {
            match joined.last_mut() {
                Some(last) if last.has_only_paths() && table.has_only_paths() => {
                    last.path.append(&mut table.path);
                }
                _ => joined.push(table),
            }
        }
        Self(joined)
    }
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Conditions;

        impl<'de> Visitor<'de> for Conditions {
            type Value = Match;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a list of these", MatchEntry::EXPECTED)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Match, E> {
                MatchEntry::from_text(text).map(|one| Match::of(vec![one])).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Match, A::Error> {
                MatchTable::deserialize(MapAccessDeserializer::new(map))
                    .map(|table| Match(vec![table]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Match, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Match::of)
            }
        }

        deserializer.deserialize_any(Conditions)
    }
}

impl JsonSchema for Match {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "match".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = MatchEntry::json_schema(generator);
        let [text, table] = [0, 1].map(|index| one.as_value()["anyOf"][index].clone());
        json_schema!({ "anyOf": [text, table, { "type": "array", "minItems": 1, "items": one }] })
    }
}

/// An entry of a list.
struct MatchEntry(MatchTable);

impl ShortForm for MatchEntry {
    type Table = MatchTable;

    const EXPECTED: &'static str =
        "a path such as \"/api/*\", or { path = \"/api/*\", method = \"GET\" }";

    fn from_text(text: &str) -> Result<Self, String> {
        Ok(Self(MatchTable { path: vec![text.parse()?], ..MatchTable::default() }))
    }

    fn from_table(table: MatchTable) -> Self {
        Self(table)
    }
}
short_or_table!(MatchEntry, "one_match", "/api/*");

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Route {
        r#match: Match,
    }

    fn read(text: &str) -> Match {
        toml::from_str::<Route>(text).expect(text).r#match
    }

    #[test]
    fn list_of_paths_is_one_condition_and_tables_are_each_their_own() {
        let paths = read("match = [\"/a/*\", \"/b\"]");
        assert_eq!(paths, read("match = { path = [\"/a/*\", \"/b\"] }"));
        assert_eq!(paths.paths().count(), 2);
        let mixed = read(
            "match = [\"/a\", { path = \"/b\", method = \"GET\" }, \"/c\", \"/d\", { path \
                = \"/e\" }]",
        );
        assert_eq!(mixed.0.iter().map(|one| one.path.len()).collect::<Vec<_>>(), [1, 1, 3]);
        assert_eq!(
            read("[[match]]\npath = \"/a\"\nmethod = \"GET\"\n[[match]]\nhost = \"b\"\n").0.len(),
            2
        );
    }

    #[test]
    fn condition_without_paths_takes_none_from_its_neighbour() {
        let matches = read("match = [{}, \"/a\"]");
        assert!(matches.0[0].is_for(&HttpMethod::GET, "", "/other", &HeaderMap::new()));
    }
}
