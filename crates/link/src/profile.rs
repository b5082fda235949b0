//! A link profile: what a link does in each direction, read from a TOML file and checked once.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The largest IP packet of the link. A queue has to hold at least one.
pub const MTU: usize = 1500;

const MAX_RATE_MBIT_PER_SECOND: f64 = 100_000.0;
const MIN_RATE_MBIT_PER_SECOND: f64 = 0.001;
const MAX_DELAY_MS: f64 = 60_000.0;
const MAX_QUEUE_MS: f64 = 60_000.0;
const MAX_QUEUE_BYTES: u64 = 1 << 30;
const MAX_LOSS_BURST_PACKETS: f64 = 10_000.0;

/// What a link does, per direction.
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
    /// Short name, shown in reports.
    pub name: String,
    /// What the profile stands for and where its numbers come from.
    pub description: String,
    /// Client to server.
    pub up: Direction,
    /// Server to client.
    pub down: Direction,
}

/// One direction of a link. All sizes are of whole IP packets, without a link-layer frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Direction {
    /// Bits of IP packets in a second; `None` is no limit.
    pub rate_bits_per_second: Option<u64>,
    /// Time from the last bit sent to its arrival.
    pub delay_ns: u64,
    /// The delay moves within ± this much. Packets never overtake each other.
    pub jitter_ns: u64,
    /// Which packets get lost on the way, after they have used the rate.
    pub loss: Loss,
    /// Bytes that may wait for the rate; `None` only when there is no rate.
    pub queue_bytes: Option<u64>,
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
}

impl Loss {
    /// The share of packets that get lost in the long run, in percent.
    pub fn percent(self) -> f64 {
        match self {
            Self::Independent { percent } | Self::Bursts { percent, .. } => percent,
        }
    }

    /// The chance that a packet gets lost after one that did not, and after one that did; 0 to 1.
    pub fn chances(self) -> (f64, f64) {
        match self {
            Self::Independent { percent } => (percent / 100.0, percent / 100.0),
            Self::Bursts { percent, packets } => (percent / (100.0 - percent) / packets, 1.0 - 1.0 / packets),
        }
    }
}

/// A direction in the units of a profile file, as shown in reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// Megabits (10^6) of IP packets in a second; `null` is no limit.
    pub rate_mbit_per_second: Option<f64>,
    /// One way.
    pub delay_ms: f64,
    /// The delay moves within ± this much.
    pub jitter_ms: f64,
    /// Of all packets in the long run.
    pub loss_percent: f64,
    /// The mean length of a run of lost packets; absent where each is lost by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_burst_packets: Option<f64>,
    /// The queue's bound in bytes, whichever unit the file used.
    pub queue_bytes: Option<u64>,
    /// The same bound as time at the profile's rate.
    pub queue_ms: Option<f64>,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read profile {path}: {source}: give a TOML file that says what the link does (docs/link.md)", path = path.display())]
    Unreadable {
        /// As given.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Not TOML, a wrong type, or a key that is missing or unknown.
    #[error("line {line}: {message}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The parser's reason, in one line.
        message: String,
    },
    /// A number outside what is allowed.
    #[error("{field} is {value}: allowed is {allowed}")]
    OutOfRange {
        /// With its table, such as `up.delay_ms`.
        field: String,
        /// As given.
        value: String,
        /// The range, with its unit.
        allowed: String,
    },
    /// Keys that do not go together, or one without another that it needs.
    #[error("{0}")]
    Inconsistent(String),
    /// An error in a file, with the file's name.
    #[error("profile {path}: {source}", path = path.display())]
    InFile {
        /// As given.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },
}

impl Profile {
    /// Reads and checks a profile file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        Self::from_toml(&text).map_err(|source| Error::InFile { path: path.to_owned(), source: Box::new(source) })
    }

    /// Checks a profile given as TOML text.
    pub fn from_toml(text: &str) -> Result<Self, Error> {
        let file: File = toml::from_str(text).map_err(|error| syntax_error(text, &error))?;
        if file.name.trim().is_empty() {
            return Err(Error::Inconsistent("name is empty: give the profile a short name".into()));
        }
        Ok(Self { name: file.name, description: file.description, up: file.up.check("up")?, down: file.down.check("down")? })
    }

    /// `sha256:…` over what the link does. Name, description, comments and spelling do not change it.
    pub fn hash(&self) -> String {
        let meaning = serde_json::to_vec(&(self.up.asked(), self.down.asked())).expect("invariant: plain numbers serialise");
        let mut text = String::from("sha256:");
        for byte in Sha256::digest(&meaning) {
            write!(text, "{byte:02x}").expect("invariant: a String takes any text");
        }
        text
    }
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
        let loss_burst_packets = match self.loss {
            Loss::Independent { .. } => None,
            Loss::Bursts { packets, .. } => Some(packets),
        };
        Asked {
            rate_mbit_per_second: self.rate_bits_per_second.map(|rate| rate as f64 / 1e6),
            delay_ms: self.delay_ns as f64 / 1e6,
            jitter_ms: self.jitter_ns as f64 / 1e6,
            loss_percent: self.loss.percent(),
            loss_burst_packets,
            queue_bytes: self.queue_bytes,
            queue_ms: self.queue_bytes.map(|bytes| self.serialisation_ns(bytes) as f64 / 1e6),
        }
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DirectionFile {
    rate_mbit_per_second: Option<f64>,
    delay_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(default)]
    loss_percent: f64,
    loss_burst_packets: Option<f64>,
    queue_bytes: Option<u64>,
    queue_ms: Option<f64>,
}

impl DirectionFile {
    fn check(self, table: &str) -> Result<Direction, Error> {
        let field = |name: &str| format!("{table}.{name}");
        within(field("delay_ms"), self.delay_ms, 0.0, MAX_DELAY_MS, "milliseconds, one way")?;
        within(field("jitter_ms"), self.jitter_ms, 0.0, self.delay_ms, "milliseconds, at most delay_ms")?;
        within(field("loss_percent"), self.loss_percent, 0.0, 100.0, "percent")?;
        let rate_bits_per_second = match self.rate_mbit_per_second {
            None => None,
            Some(rate) => {
                let unit = "megabits a second; leave it out for no limit";
                within(field("rate_mbit_per_second"), rate, MIN_RATE_MBIT_PER_SECOND, MAX_RATE_MBIT_PER_SECOND, unit)?;
                Some((rate * 1e6).round() as u64)
            }
        };
        Ok(Direction {
            rate_bits_per_second,
            delay_ns: to_ns(self.delay_ms),
            jitter_ns: to_ns(self.jitter_ms),
            loss: self.check_loss(table)?,
            queue_bytes: self.check_queue(table, rate_bits_per_second)?,
        })
    }

    fn check_loss(&self, table: &str) -> Result<Loss, Error> {
        let percent = self.loss_percent;
        let Some(packets) = self.loss_burst_packets else { return Ok(Loss::Independent { percent }) };
        if percent <= 0.0 || percent >= 100.0 {
            let what = "loss_burst_packets needs a loss_percent above 0 and below 100: give one, or leave the bursts out";
            return Err(Error::Inconsistent(format!("{table}: {what}")));
        }
        let unit = "packets; the least is what independent loss comes to";
        within(format!("{table}.loss_burst_packets"), packets, 100.0 / (100.0 - percent), MAX_LOSS_BURST_PACKETS, unit)?;
        Ok(Loss::Bursts { percent, packets })
    }

    fn check_queue(&self, table: &str, rate_bits_per_second: Option<u64>) -> Result<Option<u64>, Error> {
        let inconsistent = |what: &str| Err(Error::Inconsistent(format!("{table}: {what}")));
        let Some(rate) = rate_bits_per_second else {
            return match (self.queue_bytes, self.queue_ms) {
                (None, None) => Ok(None),
                _ => inconsistent("a queue without rate_mbit_per_second has nothing to wait for: give the rate, or leave the queue out"),
            };
        };
        match (self.queue_bytes, self.queue_ms) {
            (Some(_), Some(_)) => inconsistent("both queue_bytes and queue_ms are given: keep one"),
            (None, None) => inconsistent("rate_mbit_per_second needs a bound for its queue: give queue_bytes or queue_ms"),
            (Some(bytes), None) if !(MTU as u64..=MAX_QUEUE_BYTES).contains(&bytes) => Err(Error::OutOfRange {
                field: format!("{table}.queue_bytes"),
                value: bytes.to_string(),
                allowed: format!("{MTU} (one full packet) to {MAX_QUEUE_BYTES} bytes"),
            }),
            (Some(bytes), None) => Ok(Some(bytes)),
            (None, Some(ms)) => {
                let one_packet_ms = MTU as f64 * 8e3 / rate as f64;
                let unit = "milliseconds at the profile's rate, from one full packet on";
                within(format!("{table}.queue_ms"), ms, one_packet_ms, MAX_QUEUE_MS.max(one_packet_ms), unit)?;
                Ok(Some((ms * rate as f64 / 8e3).round() as u64))
            }
        }
    }
}

fn to_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// `NaN` is outside every range.
fn within(field: String, value: f64, low: f64, high: f64, unit: &str) -> Result<(), Error> {
    if value >= low && value <= high {
        return Ok(());
    }
    Err(Error::OutOfRange { field, value: value.to_string(), allowed: format!("{low} to {high} {unit}") })
}

fn syntax_error(text: &str, error: &toml::de::Error) -> Error {
    let start = error.span().map_or(0, |span| span.start.min(text.len()));
    let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
    let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    // What is wrong with a value does not say whose it is.
    let key = text.lines().nth(line - 1).and_then(|text| text.split_once('=')).map(|(key, _)| key.trim());
    let message = match key {
        Some(key) if message.starts_with("invalid") => format!("{key}: {message}"),
        _ => message,
    };
    Error::Syntax { line, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_up(up: &str) -> Result<Profile, Error> {
        Profile::from_toml(&format!("name = \"t\"\n[up]\n{up}\n[down]\ndelay_ms = 1\n"))
    }

    fn error_of(up: &str) -> String {
        with_up(up).expect_err("has to be refused").to_string()
    }

    #[test]
    fn full_direction_is_read_in_its_units() {
        let profile = with_up("rate_mbit_per_second = 12\ndelay_ms = 35.5\njitter_ms = 8\nloss_percent = 15\nqueue_ms = 300").unwrap();
        assert_eq!(
            profile.up,
            Direction {
                rate_bits_per_second: Some(12_000_000),
                delay_ns: 35_500_000,
                jitter_ns: 8_000_000,
                loss: Loss::Independent { percent: 15.0 },
                queue_bytes: Some(450_000),
            }
        );
        assert_eq!(profile.up.asked().queue_ms, Some(300.0));
        assert_eq!(profile.down.rate_bits_per_second, None);
    }

    #[test]
    fn out_of_range_number_names_field_and_range() {
        assert_eq!(error_of("delay_ms = 1\nloss_percent = 150"), "up.loss_percent is 150: allowed is 0 to 100 percent");
        assert_eq!(error_of("delay_ms = -1"), "up.delay_ms is -1: allowed is 0 to 60000 milliseconds, one way");
        assert!(error_of("delay_ms = nan").starts_with("up.delay_ms is NaN: allowed is"));
        assert!(error_of("delay_ms = 2\njitter_ms = 3").starts_with("up.jitter_ms is 3: allowed is 0 to 2"));
        assert!(error_of("delay_ms = 1\nrate_mbit_per_second = 0\nqueue_ms = 5").starts_with("up.rate_mbit_per_second is 0"));
    }

    #[test]
    fn queue_below_one_packet_is_refused_in_both_units() {
        assert!(error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_bytes = 1499").starts_with("up.queue_bytes is 1499"));
        assert!(error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 0.99").starts_with("up.queue_ms is 0.99"));
        assert_eq!(with_up("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap().up.queue_bytes, Some(1500));
    }

    #[test]
    fn queue_and_rate_come_together() {
        assert!(error_of("delay_ms = 1\nrate_mbit_per_second = 12").contains("give queue_bytes or queue_ms"));
        assert!(error_of("delay_ms = 1\nqueue_ms = 12").contains("without rate_mbit_per_second"));
        assert!(error_of("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 9\nqueue_bytes = 9000").contains("keep one"));
    }

    #[test]
    fn unknown_or_missing_key_names_line_and_key_in_one_line() {
        let unknown = error_of("delay_ms = 1\ndelay = 3");
        assert!(unknown.starts_with("line 4: unknown field `delay`, expected one of"), "{unknown}");
        let missing = Profile::from_toml("name = \"x\"\n[up]\ndelay_ms = 1\n").unwrap_err().to_string();
        assert!(missing.contains("missing field `down`"), "{missing}");
        let broken = Profile::from_toml("name = \"x\"\nup = [\n").unwrap_err().to_string();
        assert!(!broken.contains('\n'), "{broken}");
        let mistyped = error_of("delay_ms = \"long\"");
        assert!(mistyped.starts_with("line 3: delay_ms: invalid type"), "{mistyped}");
    }

    #[test]
    fn bursts_need_loss_and_are_longer_than_without_them() {
        let profile = with_up("delay_ms = 1\nloss_percent = 15\nloss_burst_packets = 2").unwrap();
        assert_eq!(profile.up.loss, Loss::Bursts { percent: 15.0, packets: 2.0 });
        let (after_arrival, after_loss) = profile.up.loss.chances();
        assert!((after_arrival - 0.0882).abs() < 1e-4 && (after_loss - 0.5).abs() < 1e-9, "{after_arrival} {after_loss}");
        assert!(error_of("delay_ms = 1\nloss_burst_packets = 2").contains("needs a loss_percent above 0"));
        assert!(error_of("delay_ms = 1\nloss_percent = 100\nloss_burst_packets = 2").contains("below 100"));
        assert!(
            error_of("delay_ms = 1\nloss_percent = 50\nloss_burst_packets = 1.9")
                .starts_with("up.loss_burst_packets is 1.9: allowed is 2 to")
        );
        let alone = with_up("delay_ms = 1\nloss_percent = 15").unwrap();
        assert_ne!(alone.hash(), profile.hash());
    }

    #[test]
    fn hashes_of_published_results_stay() {
        let direction = "rate_mbit_per_second = 50\ndelay_ms = 5\nqueue_ms = 100";
        let mild = Profile::from_toml(&format!("name = \"mild\"\n[up]\n{direction}\n[down]\n{direction}\n")).unwrap();
        assert_eq!(mild.hash(), "sha256:0edfa04ab8fcb18833017a58d4cc0fd7b07c269cf7eeb63b9507e090524c9de8");
    }

    #[test]
    fn missing_file_is_named() {
        let error = Profile::load(Path::new("no-such-profile.toml")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read profile no-such-profile.toml: "), "{error}");
    }

    #[test]
    fn hash_follows_meaning_not_spelling() {
        let a = with_up("delay_ms = 1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap();
        let b = with_up("# other words\nqueue_bytes = 1500\nrate_mbit_per_second = 12.0\ndelay_ms = 1.0").unwrap();
        let c = with_up("delay_ms = 1.1\nrate_mbit_per_second = 12\nqueue_ms = 1").unwrap();
        assert_eq!(a.hash(), b.hash());
        assert_ne!(a.hash(), c.hash());
        assert_eq!(a.hash().len(), "sha256:".len() + 64);
    }

    #[test]
    fn profiles_of_the_repository_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let profile = Profile::load(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(path.file_stem().unwrap().to_str().unwrap(), profile.name);
            names.push(profile.name);
        }
        for name in ["dc-far", "dc-near", "fibre", "lte", "lte-bad", "lte-bad-uplink"] {
            assert!(names.iter().any(|found| found == name), "{name} is missing");
        }
    }
}
