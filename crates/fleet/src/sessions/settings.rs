//! The settings that decide whether servers resume each other's sessions, and how they differ.

use std::fmt;

use aws_lc_rs::digest;

use super::sealed::{SEAL_BYTES, SETTINGS_BYTES};

/// Longest name or value in bytes; what is longer is cut.
const TEXT_BYTES: usize = 255;
/// Bytes of an entry before its lines: the time and the digest.
const HEADER_BYTES: usize = 8 + DIGEST_BYTES;
const DIGEST_BYTES: usize = 16;

/// What a server announces to the others with [`RedisSessions::announce`].
///
/// [`RedisSessions::announce`]: super::RedisSessions::announce
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Name of the server, a different one on each.
    pub node: String,
    /// Version of the program. Sessions of another version are never resumed.
    pub version: String,
    /// All settings that matter for sessions. Only what differs from its default is written to
    /// Redis, because servers of one version have the same defaults.
    pub settings: Vec<Setting>,
}

/// A setting that decides whether servers resume each other's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name, as in the configuration.
    pub name: String,
    /// Value in effect.
    pub value: String,
    /// Value of a server that does not set it.
    pub default: String,
    /// What servers with different values lose.
    pub effect: Effect,
}

/// What servers lose whose settings differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// All sessions of each other.
    Sessions,
    /// The QUIC sessions of each other.
    QuicSessions,
    /// Early data with sessions of each other.
    EarlyData,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "neither resumes the sessions of the other",
            Self::QuicSessions => "neither resumes the QUIC sessions of the other",
            Self::EarlyData => "sessions of one give no early data on the other",
        })
    }
}

impl Announcement {
    /// Cuts what is too long, and replaces what would break a line of the entry or of the log.
    fn cleaned(mut self) -> Self {
        for text in [&mut self.node, &mut self.version] {
            *text = clean(text);
        }
        for setting in &mut self.settings {
            // The first of these ends the name.
            setting.name = clean(&setting.name).replace('=', "?");
            setting.value = clean(&setting.value);
            setting.default = clean(&setting.default);
        }
        self
    }

    /// Returns a hash of all settings, those with default values too.
    fn digest(&self) -> [u8; DIGEST_BYTES] {
        let mut hash = digest::Context::new(&digest::SHA256);
        let settings = self.settings.iter().flat_map(|setting| [&setting.name, &setting.value]);
        for text in [&self.version].into_iter().chain(settings) {
            hash.update(&(text.len() as u64).to_be_bytes());
            hash.update(text.as_bytes());
        }
        *hash.finish().as_ref().first_chunk().expect("invariant: SHA-256 is longer")
    }
}

/// The announcement of this server.
pub(super) struct Own {
    announcement: Announcement,
    digest: [u8; DIGEST_BYTES],
}

impl Own {
    pub(super) fn new(announcement: Announcement) -> Self {
        let announcement = announcement.cleaned();
        Self { digest: announcement.digest(), announcement }
    }

    pub(super) fn node(&self) -> &str {
        &self.announcement.node
    }

    /// Returns what is written to Redis, before it is sealed.
    pub(super) fn encode(&self, written: u64) -> Vec<u8> {
        let Announcement { version, settings, .. } = &self.announcement;
        let mut entry = [&written.to_be_bytes()[..], &self.digest, version.as_bytes()].concat();
        for setting in settings.iter().filter(|setting| setting.value != setting.default) {
            let line = format!("\n{}={}", setting.name, setting.value);
            if entry.len() + line.len() + SEAL_BYTES > SETTINGS_BYTES {
                // The digest still shows that something differs.
                break;
            }
            entry.extend_from_slice(line.as_bytes());
        }
        entry
    }

    /// Returns how another server differs from this one, each as the end of a sentence about it.
    pub(super) fn differences(&self, entry: &Entry) -> Vec<String> {
        if entry.digest == self.digest {
            return Vec::new();
        }
        let differs = |name: &str, theirs: &str, ours: &str, effect: Effect| {
            format!("has {name} = {theirs}, this server {ours}: {effect}")
        };
        let Announcement { version, settings, .. } = &self.announcement;
        if entry.version != *version {
            // Its defaults may be others, and nothing else matters.
            return vec![differs("version", &entry.version, version, Effect::Sessions)];
        }
        let of_setting = |setting: &Setting| {
            let set = entry.set.iter().find(|(name, _)| *name == setting.name);
            let theirs = set.map_or(&setting.default, |(_, value)| value);
            let is_other = *theirs != setting.value;
            is_other.then(|| differs(&setting.name, theirs, &setting.value, setting.effect))
        };
        let differences: Vec<_> = settings.iter().filter_map(of_setting).collect();
        if differences.is_empty() {
            let effect = Effect::Sessions;
            return vec![format!("has other settings, as another build of {version}: {effect}")];
        }
        differences
    }
}

/// What another server has written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// When it was written, in milliseconds since 1970 by the writer's clock.
    pub(super) written: u64,
    digest: [u8; DIGEST_BYTES],
    version: String,
    /// Names and values that differ from their defaults.
    set: Vec<(String, String)>,
}

impl Entry {
    pub(super) fn decode(entry: &[u8]) -> Option<Self> {
        let (header, lines) = entry.split_first_chunk::<HEADER_BYTES>()?;
        let (written, digest) = header.split_first_chunk()?;
        let mut lines = std::str::from_utf8(lines).ok()?.split('\n');
        let is_clean = |text: &&str| text.len() <= TEXT_BYTES && !text.contains(char::is_control);
        let version = lines.next().filter(is_clean)?.to_owned();
        let set = lines.map(|line| {
            let (name, value) = line.split_once('=')?;
            [name, value].iter().all(is_clean).then(|| (name.to_owned(), value.to_owned()))
        });
        Some(Self {
            written: u64::from_be_bytes(*written),
            digest: digest.try_into().ok()?,
            version,
            set: set.collect::<Option<_>>()?,
        })
    }
}

fn clean(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_BYTES);
    // One byte, so that the text does not become longer.
    text[..end].chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn setting(name: &str, value: &str, effect: Effect) -> Setting {
        let [name, value, default] = [name, value, "1"].map(str::to_owned);
        Setting { name, value, default, effect }
    }

    fn server(idle: &str, min_tls: &str) -> Announcement {
        Announcement {
            node: "edge-1".to_owned(),
            version: "0.1.0".to_owned(),
            settings: vec![
                setting("limits.idle_timeout", idle, Effect::QuicSessions),
                setting("server.min_tls", min_tls, Effect::Sessions),
            ],
        }
    }

    fn entry(server: &Announcement) -> Entry {
        Entry::decode(&Own::new(server.clone()).encode(7)).unwrap()
    }

    fn differences(own: Announcement, other: &Announcement) -> Vec<String> {
        Own::new(own).differences(&entry(other))
    }

    #[test]
    fn servers_that_are_configured_alike_do_not_differ() {
        for value in ["1", "2"] {
            let other = Announcement { node: "edge-2".to_owned(), ..server(value, "1") };
            assert_eq!(differences(server(value, "1"), &other), Vec::<String>::new());
            assert_eq!(entry(&other).written, 7);
        }
    }

    #[test]
    fn each_different_setting_is_named_with_both_values_and_its_effect() {
        assert_eq!(
            differences(server("2", "1"), &server("1", "3")),
            [
                "has limits.idle_timeout = 1, this server 2: neither resumes the QUIC sessions of \
                 the other",
                "has server.min_tls = 3, this server 1: neither resumes the sessions of the other",
            ]
        );
    }

    #[test]
    fn other_version_is_the_only_difference() {
        let other = Announcement { version: "0.2.0".to_owned(), ..server("2", "3") };
        assert_eq!(
            differences(server("1", "1"), &other),
            ["has version = 0.2.0, this server 0.1.0: neither resumes the sessions of the \
                 other"]
        );
    }

    #[test]
    fn setting_that_this_build_does_not_have_is_noticed() {
        let mut other = server("1", "1");
        other.settings.push(setting("limits.new", "1", Effect::QuicSessions));
        let differences = differences(server("1", "1"), &other);
        assert_eq!(differences.len(), 1);
        assert!(differences[0].contains("as another build of 0.1.0"), "{differences:?}");
    }

    #[test]
    fn more_settings_than_fit_are_cut_and_still_differ() {
        let mut other = server("1", "1");
        for number in 0..200 {
            other.settings.push(setting(&number.to_string(), &"x".repeat(200), Effect::Sessions));
        }
        assert!(Own::new(other.clone()).encode(0).len() + SEAL_BYTES <= SETTINGS_BYTES);
        assert_eq!(differences(other.clone(), &other), Vec::<String>::new());
        assert!(!differences(server("1", "1"), &other).is_empty());
    }

    #[test]
    fn text_that_would_break_a_line_is_replaced() {
        let mut odd = server("a\nb", "1");
        odd.settings[0].name = "x=y".to_owned();
        odd.node = "é".repeat(300);
        assert_eq!(Own::new(odd.clone()).node(), "é".repeat(TEXT_BYTES / 2));
        assert_eq!(entry(&odd).set, [("x?y".to_owned(), "a?b".to_owned())]);
    }

    proptest! {
        #[test]
        fn arbitrary_entries_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(entry) = Entry::decode(&bytes) {
                let _ = Own::new(server("1", "1")).differences(&entry);
            }
        }
    }
}
