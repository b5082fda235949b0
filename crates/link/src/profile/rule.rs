//! Rules that police or block some packets only.

use serde::{Deserialize, Serialize};

use super::Error;
use super::error::within;
use super::units::{MTU, ms_to_ns};
use crate::flow::{Key, Protocol};
use crate::way::Way;

const MAX_TIME_MS: f64 = 24.0 * 3_600_000.0;
const MAX_POLICED_MBIT_PER_SECOND: f64 = 100_000.0;
const MIN_POLICED_MBIT_PER_SECOND: f64 = 0.001;
const MAX_BURST_BYTES: u64 = 1 << 30;
/// Default size of a bucket, as time at its rate.
const DEFAULT_BURST_SECONDS: f64 = 0.1;

/// Drops packets before they reach the queue, like a firewall or a policer at the edge of a
/// network.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    asked: RuleSpec,
    action: Action,
}

/// Action on matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Drops all packets.
    Block,
    /// Drops packets above a rate.
    Police {
        /// Bits of IP packets per second, for all matching flows together, separately in each
        /// direction.
        bits_per_second: u64,
        /// Bytes that may pass at once after a pause.
        burst_bytes: u64,
    },
}

/// A rule in the units of a profile file, for reports.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Protocol; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<RuleProtocol>,
    /// Port of the far end; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Direction of the packets.
    #[serde(default)]
    pub direction: RuleDirection,
    /// Whether all matching packets are dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub block: bool,
    /// Rate above which matching packets are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police_mbit_per_second: Option<f64>,
    /// Bytes that may pass at once after a pause; 100 ms of the rate if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police_burst_bytes: Option<u64>,
    /// Start of the rule, relative to the flow's first packet.
    #[serde(default)]
    pub after_ms: f64,
    /// End of the rule, relative to the flow's first packet; none if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<f64>,
}

/// Protocols with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleProtocol {
    /// HTTP/1.1 and HTTP/2.
    Tcp,
    /// HTTP/3.
    Udp,
}

/// Direction of the packets that a rule applies to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleDirection {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
    /// Both directions.
    #[default]
    Both,
}

impl Rule {
    pub(super) fn check(mut asked: RuleSpec, number: usize) -> Result<Self, Error> {
        let inconsistent =
            |what: &str| Err(Error::Inconsistent(format!("rules[{number}]: {what}")));
        let field = |name: &str| format!("rules[{number}].{name}");
        if asked.port.is_some() && asked.protocol.is_none() {
            return inconsistent("a port needs a protocol: add protocol = \"udp\" or \"tcp\"");
        }
        if asked.port == Some(0) {
            return inconsistent("invalid port 0: give 1 to 65535, or leave it out for any");
        }
        within(
            field("after_ms"),
            asked.after_ms,
            0.0,
            MAX_TIME_MS,
            "milliseconds after the flow's first packet",
        )?;
        if let Some(until) = asked.until_ms {
            let least = asked.after_ms + 1e-6;
            within(
                field("until_ms"),
                until,
                least,
                MAX_TIME_MS,
                "milliseconds after the flow's first packet, later than after_ms",
            )?;
        }
        let action = match (asked.block, asked.police_mbit_per_second) {
            (true, None) if asked.police_burst_bytes.is_none() => Action::Block,
            (false, Some(rate)) => {
                let range = (MIN_POLICED_MBIT_PER_SECOND, MAX_POLICED_MBIT_PER_SECOND);
                within(
                    field("police_mbit_per_second"),
                    rate,
                    range.0,
                    range.1,
                    "megabits a second",
                )?;
                let default = ((rate * 1e6 / 8.0 * DEFAULT_BURST_SECONDS) as u64).max(MTU as u64);
                let burst_bytes = *asked.police_burst_bytes.get_or_insert(default);
                if !(MTU as u64..=MAX_BURST_BYTES).contains(&burst_bytes) {
                    return Err(Error::OutOfRange {
                        field: field("police_burst_bytes"),
                        value: burst_bytes.to_string(),
                        allowed: format!("{MTU} (one full packet) to {MAX_BURST_BYTES} bytes"),
                    });
                }
                Action::Police { bits_per_second: (rate * 1e6).round() as u64, burst_bytes }
            }
            _ => {
                return inconsistent(
                    "give either block = true or police_mbit_per_second (with police_burst_bytes, \
                        if you like)",
                );
            }
        };
        Ok(Self { asked, action })
    }

    /// Returns the action on matching packets.
    pub fn action(&self) -> Action {
        self.action
    }

    /// Returns the rule in the units of a profile file, including defaults.
    pub fn asked(&self) -> &RuleSpec {
        &self.asked
    }

    /// Returns whether the rule applies to this direction at all.
    pub fn is_for(&self, way: Way) -> bool {
        match self.asked.direction {
            RuleDirection::Up => way == Way::Up,
            RuleDirection::Down => way == Way::Down,
            RuleDirection::Both => true,
        }
    }

    /// Returns whether the rule applies to a packet of this flow at this age of the flow.
    pub fn matches(&self, flow: &Key, age_ns: u64) -> bool {
        let protocol = self.asked.protocol.map(|protocol| match protocol {
            RuleProtocol::Tcp => Protocol::TCP,
            RuleProtocol::Udp => Protocol::UDP,
        });
        protocol.is_none_or(|protocol| flow.protocol == protocol)
            && self.asked.port.is_none_or(|port| flow.far_port == Some(port))
            && age_ns >= ms_to_ns(self.asked.after_ms)
            && self.asked.until_ms.is_none_or(|until| age_ns < ms_to_ns(until))
    }
}
