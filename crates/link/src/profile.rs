//! A link profile: behavior of a link in each direction, read from a TOML file and validated once.

mod direction;
mod error;
mod file;
mod hash;
pub(crate) mod in_flight;
mod rule;
#[cfg(test)]
mod tests;
mod trace;
mod units;

use serde::Serialize;

use hash::sha256;

pub(crate) use direction::burst_chances;
pub use direction::{Direction, DirectionSpec, GilbertElliott, Loss, Outages};
pub use error::Error;
pub use rule::{Action, Rule, RuleDirection, RuleProtocol, RuleSpec};
pub use trace::{OPPORTUNITY_BYTES, RateTrace};
pub use units::MTU;

/// Behavior of a link, per direction.
///
/// ```
/// let profile = pronghorn_link::Profile::from_toml(
///     r#"
///     name = "radio"
///     [up]
///     rate_mbit_per_second = 12
///     delay_ms = 35
///     queue_ms = 300
///     loss_percent = 15
///     [down]
///     delay_ms = 35
///     "#,
/// )?;
/// assert_eq!(profile.up.rate_bits_per_second, Some(12_000_000));
/// assert_eq!(profile.down.rate_bits_per_second, None);
/// # Ok::<(), pronghorn_link::profile::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Short name for reports.
    pub name: String,
    /// What the profile represents, and where its numbers come from.
    pub description: String,
    /// Client to server.
    pub up: Direction,
    /// Server to client.
    pub down: Direction,
    /// Rules for some packets only, in order.
    pub rules: Vec<Rule>,
    /// Changes over time, in order.
    pub changes: Vec<Change>,
}

/// A change of the link at a point in time.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Time after time zero, which is the client's first packet over the link.
    pub after_ns: u64,
    /// New values of the direction up. Packets in flight arrive unaffected.
    pub up: Option<Direction>,
    /// New values of the direction down. Packets in flight arrive unaffected.
    pub down: Option<Direction>,
    /// Whether the client's end gets new addresses and loses the old ones.
    pub new_client_address: bool,
}

/// A change in the units of a profile file, for reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangeSpec {
    /// Time after time zero, which is the client's first packet over the link.
    pub after_ms: f64,
    /// New values of the direction up; absent if unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<DirectionSpec>,
    /// New values of the direction down; absent if unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<DirectionSpec>,
    /// Whether the client's end gets new addresses.
    pub new_client_address: bool,
}

impl Change {
    /// Returns the change in the units of a profile file.
    pub fn asked(&self) -> ChangeSpec {
        ChangeSpec {
            after_ms: self.after_ns as f64 / 1e6,
            up: self.up.as_ref().map(Direction::asked),
            down: self.down.as_ref().map(Direction::asked),
            new_client_address: self.new_client_address,
        }
    }
}

impl Profile {
    /// Returns `sha256:…` of the link's behavior. Name, description, comments and spelling do not
    /// affect it.
    pub fn hash(&self) -> String {
        let (up, down) = (self.up.asked(), self.down.asked());
        // The hash predates rules, changes and new meanings of keys: published profiles keep their
        // hash as long as they behave the same.
        let meanings = self.meanings();
        let meaning = if self.rules.is_empty() && self.changes.is_empty() && meanings.is_empty() {
            serde_json::to_vec(&(up, down))
        } else {
            let rules: Vec<_> = self.rules.iter().map(Rule::asked).collect();
            let changes: Vec<_> = self.changes.iter().map(Change::asked).collect();
            if meanings.is_empty() {
                serde_json::to_vec(&(up, down, rules, changes))
            } else {
                serde_json::to_vec(&(up, down, rules, changes, meanings))
            }
        };
        sha256(&meaning.expect("invariant: plain numbers serialise"))
    }
}

impl Profile {
    /// Returns the same link without jitter and the resulting reordering, to measure their effect.
    /// Its name ends in `-steady`, unless it has no jitter anyway.
    #[must_use]
    pub fn without_jitter(&self) -> Self {
        let steady =
            |direction: &Direction| Direction { jitter_ns: 0, reorder: false, ..direction.clone() };
        let changes = self.changes.iter().map(|change| Change {
            up: change.up.as_ref().map(steady),
            down: change.down.as_ref().map(steady),
            ..change.clone()
        });
        let mut without = Self {
            up: steady(&self.up),
            down: steady(&self.down),
            changes: changes.collect(),
            ..self.clone()
        };
        if without != *self {
            without.name += "-steady";
        }
        without
    }

    /// Returns the keys that formerly had another meaning for the same values.
    fn meanings(&self) -> Vec<&'static str> {
        let changed = self.changes.iter().flat_map(|change| [&change.up, &change.down]).flatten();
        let directions: Vec<&Direction> =
            [&self.up, &self.down].into_iter().chain(changed).collect();
        let has = |of: fn(&Direction) -> bool| directions.iter().any(|direction| of(direction));
        let pauses = has(|direction| direction.jitter_ns > 0 && !direction.reorder)
            .then_some("jitter is pauses");
        let offset = has(|direction| direction.rate_trace.is_some())
            .then_some("trace from the seed's second on");
        pauses.into_iter().chain(offset).collect()
    }
}
