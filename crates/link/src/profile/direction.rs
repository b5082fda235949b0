//! Behavior of a link in one direction, and the same in the units of a profile file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::RateTrace;

/// One direction of a link. Sizes are those of whole IP packets, without a link-layer frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Bits of IP packets per second; `None` means no limit. With a trace, its mean.
    pub rate_bits_per_second: Option<u64>,
    /// Rate trace, instead of a steady rate.
    pub rate_trace: Option<Arc<RateTrace>>,
    /// Times in which nothing passes and packets wait; only with a steady rate.
    pub outages: Option<Outages>,
    /// Time from the last bit sent to its arrival.
    pub delay_ns: u64,
    /// Maximum pause of the link; with `reorder`, the delay of each packet varies by ± this much.
    pub jitter_ns: u64,
    /// Whether each packet draws its own jitter and may overtake others. Otherwise packets stay in
    /// order.
    pub reorder: bool,
    /// Loss of packets, after they have used the rate.
    pub loss: Loss,
    /// Numbers of packets that are lost in addition, counted as they reach the link, from 1, in
    /// order.
    pub lose_packets: Vec<u64>,
    /// Maximum bytes that wait for the rate; `None` only without a rate.
    pub queue_bytes: Option<u64>,
}

/// Outages of random length at random times, each uniform between its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outages {
    /// Minimum and maximum length.
    pub length_ns: [u64; 2],
    /// Minimum and maximum time from the start of one outage to the start of the next; the minimum
    /// is longer than the longest outage.
    pub every_ns: [u64; 2],
}

/// Loss model.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Independent loss of each packet with this probability.
    Independent {
        /// Probability in percent, 0 to 100.
        percent: f64,
    },
    /// Loss in runs: Gilbert's model, a channel that loses everything or nothing and changes at
    /// random.
    Bursts {
        /// Long-run share of all packets in percent, above 0 and below 100.
        percent: f64,
        /// Mean length of a run of lost packets, longer than with independent loss.
        packets: f64,
    },
    /// Loss by the state of a channel that may change after each packet.
    GilbertElliott(GilbertElliott),
}

/// The Gilbert-Elliott model with its four probabilities, as in netem's `gemodel`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Probability that a good channel is bad for the next packet; `p` of netem.
    pub good_to_bad_percent: f64,
    /// Probability that a bad channel is good for the next packet; `r` of netem.
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
    /// Returns the share of packets that find the channel bad, 0 to 1.
    pub fn share_bad(&self) -> f64 {
        self.good_to_bad_percent / (self.good_to_bad_percent + self.bad_to_good_percent)
    }
}

impl Loss {
    /// Returns the long-run share of lost packets, in percent.
    pub fn percent(self) -> f64 {
        match self {
            Self::Independent { percent } | Self::Bursts { percent, .. } => percent,
            Self::GilbertElliott(model) => {
                let bad = model.share_bad();
                bad * model.loss_in_bad_percent + (1.0 - bad) * model.loss_in_good_percent
            }
        }
    }

    /// Returns how many independently lost packets give as much information about the loss rate as
    /// one packet of this model. Less than one if losses are correlated.
    pub fn independent_worth(self) -> f64 {
        // The correlation of the losses of two packets k packets apart is `alike` times the k-th
        // power of `memory`.
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

/// Returns the probability that a packet is lost after a delivered one, and after a lost one; 0 to
/// 1.
pub(crate) fn burst_chances(percent: f64, packets: f64) -> (f64, f64) {
    (percent / (100.0 - percent) / packets, 1.0 - 1.0 / packets)
}

/// A direction in the units of a profile file, for reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DirectionSpec {
    /// Megabits (10^6) of IP packets per second; `null` means no limit. With a trace, its mean.
    pub rate_mbit_per_second: Option<f64>,
    /// Hash of the trace's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_trace: Option<String>,
    /// Minimum and maximum length of an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_ms: Option<[f64; 2]>,
    /// Minimum and maximum time from the start of one outage to the start of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_every_ms: Option<[f64; 2]>,
    /// One-way delay.
    pub delay_ms: f64,
    /// Maximum pause of the link; with `reorder`, the delay of each packet varies by ± this much.
    pub jitter_ms: f64,
    /// Whether packets may overtake each other; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reorder: bool,
    /// Long-run share of lost packets.
    pub loss_percent: f64,
    /// Mean length of a run of lost packets; absent for independent loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_burst_packets: Option<f64>,
    /// The model's probabilities, if the file gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gilbert_elliott: Option<GilbertElliott>,
    /// Numbers of packets that are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lose_packets: Vec<u64>,
    /// Queue limit in bytes, whichever unit the file used.
    pub queue_bytes: Option<u64>,
    /// Queue limit as time at the profile's rate.
    pub queue_ms: Option<f64>,
}

impl Direction {
    /// Returns the time that `bytes` occupy the wire; zero without a rate.
    pub fn serialisation_ns(&self, bytes: u64) -> u64 {
        self.rate_bits_per_second
            .map_or(0, |rate| (u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64)
    }

    /// Returns the probability that a packet which left the queue does not arrive, 0 to 1.
    pub fn loss_probability(&self) -> f64 {
        self.loss.percent() / 100.0
    }

    /// Returns the direction in the units of a profile file.
    pub fn asked(&self) -> DirectionSpec {
        let (loss_burst_packets, gilbert_elliott) = match self.loss {
            Loss::Independent { .. } => (None, None),
            Loss::Bursts { packets, .. } => (Some(packets), None),
            Loss::GilbertElliott(model) => (None, Some(model)),
        };
        let ms = |ns: u64| ns as f64 / 1e6;
        DirectionSpec {
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
