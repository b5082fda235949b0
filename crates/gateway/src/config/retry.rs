//! How many requests may be sent again.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// Which share of an upstream's requests may be sent again, over all workers. What 500 requests and 10 seconds bring is kept for a burst.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct RetryBudget {
    /// So many of a hundred requests may be sent again; a request is sent again 16 times at the most, so that 1600 allows all.
    #[serde(deserialize_with = "percent")]
    #[schemars(range(max = 1600))]
    pub percent: u32,
    /// And so many each second, however few requests there are.
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
    if number <= most { Ok(number) } else { Err(de::Error::custom(format!("{number} is too much: 0 to {most}"))) }
}
