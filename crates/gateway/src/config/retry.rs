//! The retry budget.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// Retry budget of an upstream: the share of its requests that may be retried, over all workers.
/// For bursts, the budget of 500 requests and 10 seconds is saved up.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct RetryBudget {
    /// Retries per hundred requests. A request is retried at most 16 times, so 1600 allows all
    /// retries.
    #[serde(deserialize_with = "percent")]
    #[schemars(range(max = 1600))]
    pub percent: u32,
    /// Retries per second that are allowed in addition, regardless of the number of requests.
    #[serde(deserialize_with = "per_second")]
    #[schemars(range(max = 1_000_000))]
    pub per_second: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self { percent: 20, per_second: 10 }
    }
}

fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    up_to(deserializer, 1600)
}

fn per_second<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    up_to(deserializer, 1_000_000)
}

fn up_to<'de, D: Deserializer<'de>>(deserializer: D, most: u32) -> Result<u32, D::Error> {
    let number = u32::deserialize(deserializer)?;
    if number <= most {
        Ok(number)
    } else {
        Err(de::Error::custom(format!("invalid value {number}: must be from 0 to {most}")))
    }
}
