//! Changes of fields, ready to be made.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::config::HeaderRules;

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
