//! The file format of a profile, and the validation that creates a [`Profile`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::error::within;
use super::units::{MTU, ms_to_ns};
use super::{
    Change, Direction, Error, GilbertElliott, Loss, Outages, Profile, RateTrace, Rule, RuleSpec,
};

const MAX_RATE_MBIT_PER_SECOND: f64 = 100_000.0;
const MIN_RATE_MBIT_PER_SECOND: f64 = 0.001;
const MAX_DELAY_MS: f64 = 60_000.0;
const MAX_QUEUE_MS: f64 = 60_000.0;
const MAX_QUEUE_BYTES: u64 = 1 << 30;
const MAX_LOSS_BURST_PACKETS: f64 = 10_000.0;
const MAX_LOSE_PACKETS: usize = 10_000;
const MAX_OUTAGE_EVERY_MS: f64 = 3_600_000.0;
const MIN_OUTAGE_MS: f64 = 1.0;
const MAX_RULES: usize = 64;
const MAX_CHANGES: usize = 16;
const MAX_CHANGE_AFTER_MS: f64 = 24.0 * 3_600_000.0;

impl Profile {
    /// Reads and validates a profile file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_toml_in(&text, folder)
            .map_err(|source| Error::InFile { path: path.to_owned(), source: Box::new(source) })
    }

    /// Validates a profile given as TOML text. Files in it are relative to the current folder.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        Self::from_toml_in(text, Path::new(""))
    }

    fn from_toml_in(text: &str, folder: &Path) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        file.check(folder)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    description: String,
    up: DirectionFile,
    down: DirectionFile,
    #[serde(default)]
    rules: Vec<RuleSpec>,
    #[serde(default)]
    changes: Vec<ChangeFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeFile {
    after_ms: f64,
    up: Option<DirectionFile>,
    down: Option<DirectionFile>,
    #[serde(default)]
    new_client_address: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionFile {
    rate_mbit_per_second: Option<f64>,
    rate_trace: Option<PathBuf>,
    outage_ms: Option<[f64; 2]>,
    outage_every_ms: Option<[f64; 2]>,
    delay_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(default)]
    reorder: bool,
    loss_percent: Option<f64>,
    loss_burst_packets: Option<f64>,
    gilbert_elliott: Option<GilbertElliott>,
    #[serde(default)]
    lose_packets: Vec<u64>,
    queue_bytes: Option<u64>,
    queue_ms: Option<f64>,
}

impl File {
    /// `folder`: base of relative paths in the file.
    fn check(self, folder: &Path) -> Result<Profile, Error> {
        if self.name.trim().is_empty() {
            return Err(Error::Inconsistent("name is empty: give the profile a short name".into()));
        }
        let at_most = |what: &str, found: usize, allowed: usize| {
            let message = format!("{found} {what} are given: allowed are at most {allowed}");
            if found > allowed { Err(Error::Inconsistent(message)) } else { Ok(()) }
        };
        at_most("[[rules]]", self.rules.len(), MAX_RULES)?;
        at_most("[[changes]]", self.changes.len(), MAX_CHANGES)?;
        Ok(Profile {
            name: self.name,
            description: self.description,
            up: self.up.check("up", folder)?,
            down: self.down.check("down", folder)?,
            rules: self
                .rules
                .into_iter()
                .zip(1..)
                .map(|(rule, number)| Rule::check(rule, number))
                .collect::<Result<_, _>>()?,
            changes: check_changes(self.changes, folder)?,
        })
    }
}

fn check_changes(changes: Vec<ChangeFile>, folder: &Path) -> Result<Vec<Change>, Error> {
    let mut checked: Vec<Change> = Vec::new();
    for (change, number) in changes.into_iter().zip(1..) {
        let table = format!("changes[{number}]");
        let unit = "milliseconds after the client's first packet over the link";
        within(format!("{table}.after_ms"), change.after_ms, 1.0, MAX_CHANGE_AFTER_MS, unit)?;
        let after_ns = ms_to_ns(change.after_ms);
        let inconsistent = |what: &str| Err(Error::Inconsistent(format!("{table}: {what}")));
        if checked.last().is_some_and(|before| before.after_ns >= after_ns) {
            return inconsistent(
                "after_ms is not later than that of the change before: write changes in their \
                    order",
            );
        }
        if change.up.is_none() && change.down.is_none() && !change.new_client_address {
            return inconsistent(
                "nothing changes: give [changes.up], [changes.down] or new_client_address = true",
            );
        }
        let direction = |given: Option<DirectionFile>, name: &str| {
            given.map(|direction| direction.check(&format!("{table}.{name}"), folder)).transpose()
        };
        let (up, down) = (direction(change.up, "up")?, direction(change.down, "down")?);
        checked.push(Change { after_ns, up, down, new_client_address: change.new_client_address });
    }
    Ok(checked)
}

impl DirectionFile {
    fn check(self, table: &str, folder: &Path) -> Result<Direction, Error> {
        let field = |name: &str| format!("{table}.{name}");
        within(field("delay_ms"), self.delay_ms, 0.0, MAX_DELAY_MS, "milliseconds, one way")?;
        within(
            field("jitter_ms"),
            self.jitter_ms,
            0.0,
            self.delay_ms,
            "milliseconds, at most delay_ms",
        )?;
        if self.reorder && self.jitter_ms <= 0.0 {
            return Err(Error::Inconsistent(format!(
                "{table}: reorder needs a jitter_ms above 0: without it no packet can overtake"
            )));
        }
        let rate_trace = self.load_trace(table, folder)?;
        if rate_trace.is_some() && self.jitter_ms > 0.0 && !self.reorder {
            let what = "jitter_ms does not go with rate_trace, which has the link's pauses itself: \
                leave jitter_ms out";
            return Err(Error::Inconsistent(format!("{table}: {what}")));
        }
        let rate_bits_per_second = match (self.rate_mbit_per_second, &rate_trace) {
            (None, None) => None,
            (None, Some(trace)) => Some(trace.mean_bits_per_second()),
            (Some(_), Some(_)) => {
                return Err(Error::Inconsistent(format!(
                    "{table}: both rate_mbit_per_second and rate_trace are given: keep one"
                )));
            }
            (Some(rate), None) => {
                let unit = "megabits a second; leave it out for no limit";
                within(
                    field("rate_mbit_per_second"),
                    rate,
                    MIN_RATE_MBIT_PER_SECOND,
                    MAX_RATE_MBIT_PER_SECOND,
                    unit,
                )?;
                Some((rate * 1e6).round() as u64)
            }
        };
        Ok(Direction {
            rate_bits_per_second,
            rate_trace,
            outages: self.check_outages(table)?,
            delay_ns: ms_to_ns(self.delay_ms),
            jitter_ns: ms_to_ns(self.jitter_ms),
            reorder: self.reorder,
            loss: self.check_loss(table)?,
            lose_packets: check_lose_packets(&self.lose_packets, table)?,
            queue_bytes: self.check_queue(table, rate_bits_per_second)?,
        })
    }

    fn load_trace(&self, table: &str, folder: &Path) -> Result<Option<Arc<RateTrace>>, Error> {
        let Some(path) = &self.rate_trace else { return Ok(None) };
        if path.as_os_str().is_empty() {
            return Err(Error::Inconsistent(format!(
                "{table}: rate_trace is empty: name a file, beside the profile or with its path"
            )));
        }
        RateTrace::load(&folder.join(path)).map(|trace| Some(Arc::new(trace)))
    }

    fn check_outages(&self, table: &str) -> Result<Option<Outages>, Error> {
        let (length_ms, every_ms) = match (self.outage_ms, self.outage_every_ms) {
            (None, None) => return Ok(None),
            (Some(length), Some(every)) => (length, every),
            _ => {
                return Err(Error::Inconsistent(format!(
                    "{table}: outage_ms and outage_every_ms belong together: give both"
                )));
            }
        };
        if self.rate_mbit_per_second.is_none() {
            let what = "outages need a rate_mbit_per_second, whose queue holds what waits; a trace \
                has its own";
            return Err(Error::Inconsistent(format!("{table}: {what}")));
        }
        let field = |name: &str| format!("{table}.{name}");
        within(
            field("outage_ms[0]"),
            length_ms[0],
            MIN_OUTAGE_MS,
            MAX_OUTAGE_EVERY_MS,
            "milliseconds, the shortest outage",
        )?;
        within(
            field("outage_ms[1]"),
            length_ms[1],
            length_ms[0],
            MAX_OUTAGE_EVERY_MS,
            "milliseconds, the longest outage",
        )?;
        let unit = "milliseconds from the start of one outage to that of the next, the least: \
            longer than the longest outage";
        within(
            field("outage_every_ms[0]"),
            every_ms[0],
            length_ms[1] + MIN_OUTAGE_MS,
            MAX_OUTAGE_EVERY_MS,
            unit,
        )?;
        within(
            field("outage_every_ms[1]"),
            every_ms[1],
            every_ms[0],
            MAX_OUTAGE_EVERY_MS,
            "milliseconds, the most",
        )?;
        Ok(Some(Outages { length_ns: length_ms.map(ms_to_ns), every_ns: every_ms.map(ms_to_ns) }))
    }

    fn check_loss(&self, table: &str) -> Result<Loss, Error> {
        if let Some(model) = self.gilbert_elliott {
            if self.loss_percent.is_some() || self.loss_burst_packets.is_some() {
                let what = "gilbert_elliott says all of the loss: leave loss_percent and \
                    loss_burst_packets out";
                return Err(Error::Inconsistent(format!("{table}: {what}")));
            }
            return check_model(model, table);
        }
        let percent = self.loss_percent.unwrap_or(0.0);
        within(format!("{table}.loss_percent"), percent, 0.0, 100.0, "percent")?;
        let Some(packets) = self.loss_burst_packets else {
            return Ok(Loss::Independent { percent });
        };
        if percent <= 0.0 || percent >= 100.0 {
            let what = "loss_burst_packets needs a loss_percent above 0 and below 100: give one, \
                or leave the bursts out";
            return Err(Error::Inconsistent(format!("{table}: {what}")));
        }
        let unit = "packets; the least is what independent loss comes to";
        within(
            format!("{table}.loss_burst_packets"),
            packets,
            100.0 / (100.0 - percent),
            MAX_LOSS_BURST_PACKETS,
            unit,
        )?;
        Ok(Loss::Bursts { percent, packets })
    }

    fn check_queue(
        &self,
        table: &str,
        rate_bits_per_second: Option<u64>,
    ) -> Result<Option<u64>, Error> {
        let inconsistent = |what: &str| Err(Error::Inconsistent(format!("{table}: {what}")));
        let Some(rate) = rate_bits_per_second else {
            return match (self.queue_bytes, self.queue_ms) {
                (None, None) => Ok(None),
                _ => inconsistent(
                    "a queue without rate_mbit_per_second has nothing to wait for: give the rate, \
                        or leave the queue out",
                ),
            };
        };
        match (self.queue_bytes, self.queue_ms) {
            (Some(_), Some(_)) => inconsistent("both queue_bytes and queue_ms are given: keep one"),
            (None, None) if self.rate_trace.is_some() => inconsistent(
                "rate_trace needs a bound for its queue: give queue_bytes, or queue_ms at the \
                    trace's mean rate",
            ),
            (None, None) => inconsistent(
                "rate_mbit_per_second needs a bound for its queue: give queue_bytes or queue_ms",
            ),
            (Some(bytes), None) if !(MTU as u64..=MAX_QUEUE_BYTES).contains(&bytes) => {
                Err(Error::OutOfRange {
                    field: format!("{table}.queue_bytes"),
                    value: bytes.to_string(),
                    allowed: format!("{MTU} (one full packet) to {MAX_QUEUE_BYTES} bytes"),
                })
            }
            (Some(bytes), None) => Ok(Some(bytes)),
            (None, Some(ms)) => {
                let one_packet_ms = MTU as f64 * 8e3 / rate as f64;
                let unit = "milliseconds at the profile's rate, from one full packet on";
                within(
                    format!("{table}.queue_ms"),
                    ms,
                    one_packet_ms,
                    MAX_QUEUE_MS.max(one_packet_ms),
                    unit,
                )?;
                Ok(Some((ms * rate as f64 / 8e3).round() as u64))
            }
        }
    }
}

fn check_model(model: GilbertElliott, table: &str) -> Result<Loss, Error> {
    let field = |name: &str| format!("{table}.gilbert_elliott.{name}");
    within(
        field("good_to_bad_percent"),
        model.good_to_bad_percent,
        0.0,
        100.0,
        "percent of packets",
    )?;
    within(
        field("bad_to_good_percent"),
        model.bad_to_good_percent,
        0.0,
        100.0,
        "percent of packets",
    )?;
    within(field("loss_in_bad_percent"), model.loss_in_bad_percent, 0.0, 100.0, "percent")?;
    within(field("loss_in_good_percent"), model.loss_in_good_percent, 0.0, 100.0, "percent")?;
    let changes = model.good_to_bad_percent + model.bad_to_good_percent;
    if changes <= 0.0 || changes >= 200.0 {
        let what = "gilbert_elliott: good_to_bad_percent and bad_to_good_percent must neither both \
            be 0 nor both be 100";
        return Err(Error::Inconsistent(format!("{table}: {what}")));
    }
    Ok(Loss::GilbertElliott(model))
}

fn check_lose_packets(numbers: &[u64], table: &str) -> Result<Vec<u64>, Error> {
    if numbers.contains(&0) {
        return Err(Error::Inconsistent(format!(
            "{table}: lose_packets has a 0: packets are counted from 1"
        )));
    }
    if numbers.len() > MAX_LOSE_PACKETS {
        let message = format!(
            "{table}: lose_packets names {} packets: allowed are {MAX_LOSE_PACKETS}",
            numbers.len()
        );
        return Err(Error::Inconsistent(message));
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    Ok(sorted)
}

fn syntax_error(text: &str, error: &toml::de::Error) -> Error {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // The error message does not contain the key.
    let key =
        text.lines().nth(line - 1).and_then(|text| text.split_once('=')).map(|(key, _)| key.trim());
    let message = match key {
        Some(key) if message.starts_with("invalid") => format!("{key}: {message}"),
        _ => message,
    };
    Error::Syntax { line, message }
}
