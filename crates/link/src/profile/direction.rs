//! What a link does in one direction, and the same in the units of a profile file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::RateTrace;

/// One direction of a link. All sizes are of whole IP packets, without a link-layer frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Bits of IP packets in a second; `None` is no limit. The mean of the trace where there is one.
    pub rate_bits_per_second: Option<u64>,
    /// When how much may pass, instead of a steady rate.
    pub rate_trace: Option<Arc<RateTrace>>,
    /// Times in which nothing passes and packets wait; only with a steady rate.
    pub outages: Option<Outages>,
    /// Time from the last bit sent to its arrival.
    pub delay_ns: u64,
    /// The longest pause of the link; the delay of each packet moves within ± this much with `reorder`.
    pub jitter_ns: u64,
    /// Each packet draws its own jitter and may overtake others. Otherwise packets never do.
    pub reorder: bool,
    /// Which packets get lost on the way, after they have used the rate.
    pub loss: Loss,
    /// These get lost too: numbers of packets as they reach the link, from 1, in order.
    pub lose_packets: Vec<u64>,
    /// Bytes that may wait for the rate; `None` only when there is no rate.
    pub queue_bytes: Option<u64>,
}

/// Outages of random length at random times, each uniform between its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outages {
    /// Shortest and longest.
    pub length_ns: [u64; 2],
    /// From the start of one to the start of the next; the shortest is longer than the longest outage.
    pub every_ns: [u64; 2],
}

/// How packets get lost.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Each packet by itself, with this probability in percent.
    Independent {
        /// 0 to 100.
        percent: f64,
    },
    /// In runs: Gilbert's model, a channel that loses everything or nothing and changes its mind at random.
    Bursts {
        /// Of all packets in the long run; above 0 and below 100.
        percent: f64,
        /// The mean length of a run of lost packets: longer than if each were lost by itself.
        packets: f64,
    },
    /// By the state of a channel that may change after each packet.
    GilbertElliott(GilbertElliott),
}

/// Gilbert's and Elliott's model with all its four chances, as netem's `gemodel` has them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Chance that a good channel is bad for the next packet; `p` of netem.
    pub good_to_bad_percent: f64,
    /// Chance that a bad channel is good for the next packet; `r` of netem.
    pub bad_to_good_percent: f64,
    /// Loss while the channel is bad; `1-h` of netem.
    #[serde(default = "everything")]
    pub loss_in_bad_percent: f64,
    /// Loss while the channel is good; `1-k` of netem.
    #[serde(default)]
    pub loss_in_good_percent: f64,
}

fn everything() -> f64 {
    100.0
}

impl GilbertElliott {
    /// The share of packets that find the channel bad, 0 to 1.
    pub fn share_bad(&self) -> f64 {
        self.good_to_bad_percent / (self.good_to_bad_percent + self.bad_to_good_percent)
    }
}

impl Loss {
    /// The share of packets that get lost in the long run, in percent.
    pub fn percent(self) -> f64 {
        match self {
            Self::Independent { percent } | Self::Bursts { percent, .. } => percent,
            Self::GilbertElliott(model) => {
                let bad = model.share_bad();
                bad * model.loss_in_bad_percent + (1.0 - bad) * model.loss_in_good_percent
            }
        }
    }

    /// How many packets that are lost each by itself say as much about the share of losses as one packet does here. Less
    /// than one where losses come together.
    pub fn independent_worth(self) -> f64 {
        // The correlation of two packets' losses, k packets apart, is `alike` times the k-th power of `memory`.
        let (alike, memory) = match self {
            Self::Independent { .. } => return 1.0,
            Self::Bursts { percent, packets } => {
                let (after_arrival, after_loss) = burst_chances(percent, packets);
                (1.0, after_loss - after_arrival)
            }
            Self::GilbertElliott(model) => {
                let (bad, lost) = (model.share_bad(), self.percent() / 100.0);
                if lost <= 0.0 || lost >= 1.0 {
                    return 1.0;
                }
                let difference = (model.loss_in_bad_percent - model.loss_in_good_percent) / 100.0;
                let alike = bad * (1.0 - bad) * difference.powi(2) / (lost * (1.0 - lost));
                (alike, 1.0 - (model.good_to_bad_percent + model.bad_to_good_percent) / 100.0)
            }
        };
        1.0 / (1.0 + 2.0 * alike * memory / (1.0 - memory))
    }
}

/// The chance that a packet gets lost after one that did not, and after one that did; 0 to 1.
pub(crate) fn burst_chances(percent: f64, packets: f64) -> (f64, f64) {
    (percent / (100.0 - percent) / packets, 1.0 - 1.0 / packets)
}

/// A direction in the units of a profile file, as shown in reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// Megabits (10^6) of IP packets in a second; `null` is no limit. The mean of a trace.
    pub rate_mbit_per_second: Option<f64>,
    /// Hash of the trace's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_trace: Option<String>,
    /// Shortest and longest outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_ms: Option<[f64; 2]>,
    /// From the start of one outage to the start of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_every_ms: Option<[f64; 2]>,
    /// One way.
    pub delay_ms: f64,
    /// The longest pause of the link; the delay of each packet moves within ± this much with `reorder`.
    pub jitter_ms: f64,
    /// Packets may overtake each other; absent where they may not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reorder: bool,
    /// Of all packets in the long run.
    pub loss_percent: f64,
    /// The mean length of a run of lost packets; absent where each is lost by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_burst_packets: Option<f64>,
    /// The model's chances, where the file gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Packets that are lost by their number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lose_packets: Vec<u64>,
    /// The queue's bound in bytes, whichever unit the file used.
    pub queue_bytes: Option<u64>,
    /// The same bound as time at the profile's rate.
    pub queue_ms: Option<f64>,
}

impl Direction {
    /// Time that `bytes` occupy the wire; zero without a rate.
    pub fn serialisation_ns(&self, bytes: u64) -> u64 {
        self.rate_bits_per_second.map_or(0, |rate| (u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64)
    }

    /// The chance that a packet which left the queue does not arrive, 0 to 1.
    pub fn loss_probability(&self) -> f64 {
        self.loss.percent() / 100.0
    }

    /// The same in the units of a profile file.
    pub fn asked(&self) -> Asked {
        let (loss_burst_packets, gilbert_elliott) = match self.loss {
            Loss::Independent { .. } => (None, None),
            Loss::Bursts { packets, .. } => (Some(packets), None),
            Loss::GilbertElliott(model) => (None, Some(model)),
        };
        let ms = |ns: u64| ns as f64 / 1e6;
        Asked {
            rate_mbit_per_second: self.rate_bits_per_second.map(|rate| rate as f64 / 1e6),
            rate_trace: self.rate_trace.as_ref().map(|trace| trace.hash()),
            outage_ms: self.outages.map(|outages| outages.length_ns.map(ms)),
            outage_every_ms: self.outages.map(|outages| outages.every_ns.map(ms)),
            delay_ms: ms(self.delay_ns),
            jitter_ms: ms(self.jitter_ns),
            reorder: self.reorder,
            loss_percent: self.loss.percent(),
            loss_burst_packets,
            gilbert_elliott,
            lose_packets: self.lose_packets.clone(),
            queue_bytes: self.queue_bytes,
            queue_ms: self.queue_bytes.map(|bytes| ms(self.serialisation_ns(bytes))),
        }
    }
}
