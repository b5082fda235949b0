//! Changes of fields, ready to be made.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::HeaderRules;
use crate::identity_fields::{is_plain, take_away};

/// What [`HeaderRules`] say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    remove: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
    add: Vec<(HeaderName, HeaderValue)>,
}

impl Rules {
    /// `first` and then `second`.
    pub(crate) fn both(first: &HeaderRules, second: &HeaderRules) -> [Self; 2] {
        [Self::from(first), Self::from(second)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.set.is_empty() && self.add.is_empty()
    }

    /// Changes fields of a request. What is removed or set goes in each spelling that applications may take for it.
    pub(crate) fn apply_to_request(&self, headers: &mut HeaderMap) {
        let set = self.set.iter().map(|(name, _)| name);
        for name in self.remove.iter().chain(set).filter(|name| !is_plain(name.as_str())) {
            // Of a plain name the others were set aside before.
            take_away(headers, name);
        }
        self.apply(headers);
    }

    /// Changes fields.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.remove {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.insert(name.clone(), value.clone());
        }
        for (name, value) in &self.add {
            headers.append(name.clone(), value.clone());
        }
    }
}

impl From<&HeaderRules> for Rules {
    fn from(rules: &HeaderRules) -> Self {
        let pairs = |table: &std::collections::BTreeMap<crate::config::FieldName, crate::config::FieldValue>| {
            table.iter().map(|(name, value)| (name.name(), value.0.clone())).collect()
        };
        Self { remove: rules.remove.iter().map(crate::config::FieldName::name).collect(), set: pairs(&rules.set), add: pairs(&rules.add) }
    }
}
