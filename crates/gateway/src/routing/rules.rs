//! Compiled rules that change header fields.

use std::collections::BTreeMap;
use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::{FieldName, FieldValue, HeaderRules};
use crate::fields::identity_fields::{is_plain, remove_in_all_spellings};

/// Compiled [`HeaderRules`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
    /// Whether values of a request name the client.
    has_client: bool,
}

/// In values of request fields, the client's address.
const CLIENT: &str = "{client}";

impl Rules {
    /// Compiles `first` and `second`.
    pub(crate) fn both(first: &HeaderRules, second: &HeaderRules) -> [Self; 2] {
        [Self::from(first), Self::from(second)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Applies the rules to a request. Fields that are removed or set are removed in every spelling
    /// that applications may treat as equal. `client` returns the client's address.
    pub(crate) fn apply_to_request(
        &self,
        headers: &mut HeaderMap,
        client: impl Fn(&HeaderMap) -> IpAddr,
    ) {
        // Read before the rules change the fields that name it.
        let client = self.has_client.then(|| client(headers).to_string());
        let set = self.set.iter().map(|(name, _)| name);
        for name in self.remove.iter().chain(set).filter(|name| !is_plain(name.as_str())) {
            // Other spellings of a plain name were already set aside.
            remove_in_all_spellings(headers, name);
        }
        match client {
            Some(client) => self.apply_with(headers, |value| with_client(value, &client)),
            None => self.apply(headers),
        }
    }

    /// Applies the rules.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        self.apply_with(headers, HeaderValue::clone);
    }

    fn apply_with(&self, headers: &mut HeaderMap, written: impl Fn(&HeaderValue) -> HeaderValue) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), written(value));
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), written(value));
        }
    }
}

/// Returns the value with the client's address in place of [`CLIENT`]. A value without it, which
/// may be other than ASCII, stays as it is.
fn with_client(value: &HeaderValue, client: &str) -> HeaderValue {
    let replaced = std::str::from_utf8(value.as_bytes())
        .ok()
        .filter(|text| text.contains(CLIENT))
        .and_then(|text| HeaderValue::try_from(text.replace(CLIENT, client)).ok());
    replaced.unwrap_or_else(|| value.clone())
}

impl From<&HeaderRules> for Rules {
    fn from(rules: &HeaderRules) -> Self {
        let pairs = |table: &BTreeMap<FieldName, FieldValue>| {
            table.iter().map(|(name, value)| (name.name(), value.0.clone())).collect()
        };
        let has_client = rules
            .set
            .values()
            .chain(rules.add.values())
            .any(|value| String::from_utf8_lossy(value.0.as_bytes()).contains(CLIENT));
        Self {
            remove: rules.remove.iter().map(FieldName::name).collect(),
            set: pairs(&rules.set),
            add: pairs(&rules.add),
            has_client,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_in_one_value_leaves_the_other_rules_as_they_are() {
        let name = |name: &str| name.parse::<FieldName>().expect("a name");
        let value = |value: &str| value.parse::<FieldValue>().expect("a value");
        let rules = Rules::from(&HeaderRules {
            remove: vec![name("x-gone")],
            set: [
                (name("x-tenant"), value("Z\u{fc}rich")),
                (name("x-real-ip"), value("{client}")),
                (name("x-plain"), value("a")),
            ]
            .into(),
            add: [(name("x-more"), value("at {client}"))].into(),
        });
        let mut headers = HeaderMap::new();
        for field in ["x-tenant", "x-real-ip", "x-gone", "x-plain", "x-more"] {
            headers.insert(HeaderName::from_static(field), HeaderValue::from_static("forged"));
        }
        rules.apply_to_request(&mut headers, |_| [192, 0, 2, 7].into());
        let lines = |field: &str| {
            headers.get_all(field).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>()
        };
        assert_eq!(lines("x-tenant"), ["Z\u{fc}rich".as_bytes()]);
        assert_eq!(lines("x-real-ip"), [b"192.0.2.7"]);
        assert_eq!(lines("x-plain"), [b"a"]);
        assert_eq!(lines("x-more"), [&b"forged"[..], b"at 192.0.2.7"]);
        assert_eq!(lines("x-gone"), [b""; 0]);
    }
}
