//! Priorities of responses (RFC 9218 section 4).

use std::convert::Infallible;
use std::fmt;

use sfv::visitor::{
    DictionaryVisitor, EntryVisitor, Ignored, InnerListVisitor, ItemVisitor, ParameterVisitor,
};
use sfv::{BareItemFromInput, KeyRef, Parser, key_ref};

const URGENCY: &KeyRef = key_ref("u");
const INCREMENTAL: &KeyRef = key_ref("i");

/// Priority of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Priority {
    /// Urgency, from 0 (most urgent) to 7. Default: 3.
    pub urgency: u8,
    /// Whether the client can process the response as it arrives. An incremental response shares
    /// the connection with others of its urgency instead of being sent before or after them.
    /// Default: false.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// The least urgent level.
    pub const MAX_URGENCY: u8 = 7;

    /// Parses a request's `priority` field or the value of a PRIORITY_UPDATE frame.
    pub fn from_field(value: &[u8]) -> Self {
        Self::default().overridden_by(value)
    }

    /// Returns this priority overridden by a response's `priority` field. Parameters that are
    /// absent there keep the client's value (RFC 9218 section 8).
    ///
    /// An invalid dictionary changes nothing (RFC 8941 section 4.2).
    #[must_use]
    pub fn overridden_by(self, value: &[u8]) -> Self {
        let Ok(parameters) =
            Parser::new(value).parse_dictionary_with_visitor(Parameters::default())
        else {
            return self;
        };
        Self {
            urgency: parameters.urgency.unwrap_or(self.urgency),
            incremental: parameters.incremental.unwrap_or(self.incremental),
        }
    }
}

impl fmt::Display for Priority {
    /// Formats the value of the field, with all parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "u={}{}", self.urgency, if self.incremental { ", i" } else { "" })
    }
}

/// Parameters of a value. The last one of a name counts, even if it is invalid.
#[derive(Debug, Default)]
struct Parameters {
    urgency: Option<u8>,
    incremental: Option<bool>,
}

impl<'de> DictionaryVisitor<'de> for Parameters {
    type Out = Self;
    type Error = Infallible;

    fn entry(&mut self, key: &'de KeyRef) -> Result<impl EntryVisitor<'de>, Infallible> {
        //= RFC 9218 section 4
        //# Where the Dictionary is successfully parsed, this document places the additional requirement that unknown priority
        //# parameters, priority parameters with out-of-range values, or values of unexpected types MUST be ignored.
        if key == URGENCY {
            self.urgency = None;
            Ok(Some(Parameter::Urgency(&mut self.urgency)))
        } else if key == INCREMENTAL {
            self.incremental = None;
            Ok(Some(Parameter::Incremental(&mut self.incremental)))
        } else {
            Ok(None)
        }
    }

    fn finish(self) -> Result<Self, Infallible> {
        Ok(self)
    }
}

enum Parameter<'a> {
    Urgency(&'a mut Option<u8>),
    Incremental(&'a mut Option<bool>),
}

impl<'de> EntryVisitor<'de> for Parameter<'_> {
    type Error = Infallible;

    fn item(self) -> Result<impl ItemVisitor<'de>, Infallible> {
        Ok(self)
    }

    fn inner_list(self) -> Result<impl InnerListVisitor<'de>, Infallible> {
        Ok(Ignored)
    }
}

impl<'de> ItemVisitor<'de> for Parameter<'_> {
    type Out = ();
    type Error = Infallible;

    fn bare_item(
        self,
        item: BareItemFromInput<'de>,
    ) -> Result<impl ParameterVisitor<'de, Out = ()>, Infallible> {
        match (self, item) {
            (Self::Urgency(urgency), BareItemFromInput::Integer(value)) => {
                *urgency = u8::try_from(value).ok().filter(|value| *value <= Priority::MAX_URGENCY);
            }
            (Self::Incremental(incremental), BareItemFromInput::Boolean(value)) => {
                *incremental = Some(value);
            }
            _ => {}
        }
        Ok(Ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    #[test]
    fn field_values_are_read_as_the_rfc_says() {
        for (value, expected) in [
            ("", priority(3, false)),
            ("u=0", priority(0, false)),
            ("u=7, i", priority(7, true)),
            ("i=?1,u=1", priority(1, true)),
            ("u=5;x=y, i=?0", priority(5, false)),
            // The last of two counts.
            ("u=5, u=1", priority(1, false)),
            ("u=5, u=9", priority(3, false)),
            //= RFC 9218 section 4
            //# Where the Dictionary is successfully parsed, this document places the additional requirement that unknown priority
            //# parameters, priority parameters with out-of-range values, or values of unexpected types MUST be ignored.
            ("u=1, x=\"text\", y=(1 2);z, i", priority(1, true)),
            ("u=8", priority(3, false)),
            ("u=-1, i", priority(3, true)),
            ("u=256", priority(3, false)),
            ("u=1.5, i=1", priority(3, false)),
            ("u, i=(?1)", priority(3, false)),
            // An invalid dictionary is ignored entirely.
            ("u=1,", priority(3, false)),
            ("u=1, i, U=2", priority(3, false)),
            ("u=1; i=", priority(3, false)),
            ("u=1\u{0}", priority(3, false)),
            ("ü=1", priority(3, false)),
        ] {
            assert_eq!(Priority::from_field(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn response_overrides_only_what_it_names() {
        let asked = priority(1, true);
        assert_eq!(asked.overridden_by(b"u=5"), priority(5, true));
        assert_eq!(asked.overridden_by(b"i=?0"), priority(1, false));
        assert_eq!(asked.overridden_by(b"u=9"), asked);
        assert_eq!(asked.overridden_by(b"(("), asked);
    }

    #[test]
    fn shown_priority_is_read_back() {
        for urgency in 0..=Priority::MAX_URGENCY {
            for incremental in [false, true] {
                let shown = priority(urgency, incremental);
                assert_eq!(Priority::from_field(shown.to_string().as_bytes()), shown);
            }
        }
    }
}
