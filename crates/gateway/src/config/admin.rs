//! Where the running server can be asked and told things.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aws_lc_rs::digest;
use schemars::JsonSchema;
use serde::Deserialize;

use super::load::Config;
use super::problem::Problem;
use super::source::{Excerpt, Place};
use super::values::written;

/// Fewer characters than this could be guessed by a program that may connect as often as it likes.
const TOKEN_CHARACTERS: usize = 16;

/// The table `[admin]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Admin {
    /// Where the admin API is: `unix:PATH`, a loopback address, or `off`. If it is left out, the socket `admin.sock` in `state_dir` of
    /// `[server]`, and without that folder a socket in `$XDG_STATE_HOME/pronghorn` (`~/.local/state/pronghorn`) that is named after the configuration file.
    pub listen: Option<AdminListen>,
    /// What requests have to bring as `Authorization: Bearer TOKEN`; required with a loopback address.
    #[schemars(with = "Option<String>")]
    pub token: Option<Token>,
}

/// Where the admin API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// Nowhere.
    Off,
    /// A socket in the file system, for its owner only.
    Unix(PathBuf),
    /// An address that only this machine reaches.
    Tcp(SocketAddr),
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            format!("{text:?} is no address of an admin API: write it as unix:/run/pronghorn/admin.sock, 127.0.0.1:2019 or off")
        })
    }
}
written!(
    AdminListen,
    "admin address",
    "unix:PATH for a socket of its owner, a loopback address, or off.",
    "unix:/run/pronghorn/admin.sock"
);

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}

/// A secret. It is never shown.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub struct Token(pub(crate) String);

impl Token {
    /// The text, for who has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the same. How long that takes says nothing about the token but its length.
    pub fn is(&self, given: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), given).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Config {
    /// Folder for what has to survive a restart, where one is named.
    pub fn state_dir(&self) -> Option<PathBuf> {
        let place = Place { file: 0, path: Vec::new() };
        self.server.state_dir.as_deref().map(|folder| self.path(&place, folder))
    }

    /// Where the admin API is; `None` if the configuration does not say.
    pub fn admin_address(&self) -> Option<AdminListen> {
        let place = Place { file: 0, path: Vec::new() };
        address(self.admin.listen.clone(), self.state_dir(), |path| self.path(&place, path))
    }
}

/// `whole`: a path of `listen` as seen from the folder of the configuration.
fn address(listen: Option<AdminListen>, state_dir: Option<PathBuf>, whole: impl Fn(&Path) -> PathBuf) -> Option<AdminListen> {
    match listen {
        Some(AdminListen::Unix(path)) => Some(AdminListen::Unix(whole(&path))),
        Some(listen) => Some(listen),
        None => state_dir.map(|folder| AdminListen::Unix(folder.join("admin.sock"))),
    }
}

/// How a running server is reached, as its configuration file says it.
///
/// Nothing else of the file is looked at: it may be half edited, or name variables that only the server's environment has.
#[derive(Debug)]
pub struct AdminAccess {
    /// Where the admin API is; `None` if the configuration does not say.
    pub address: Option<AdminListen>,
    /// What requests have to bring.
    pub token: Option<Token>,
    /// The first error of syntax, because of which the rest of the file may not be what it seems.
    pub syntax: Option<Problem>,
}

impl AdminAccess {
    /// Reads `file`, with the environment of this process.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or what it says of the admin API cannot.
    pub fn read(file: &Path) -> Result<Self, Problem> {
        Self::read_with(file, &|name| std::env::var(name).ok())
    }

    pub(crate) fn read_with(file: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let source = Excerpt::read(file, environment)?;
        let listen = source.text("admin", "listen")?;
        let listen = listen.map(|(text, span)| text.parse().map_err(|error: String| source.problem(&span, error))).transpose()?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let state_dir = match listen {
            None => source.text("server", "state_dir")?.map(|(path, _)| folder.join(path)),
            Some(_) => None,
        };
        let address = address(listen, state_dir, |path| folder.join(path));
        let token = source.text("admin", "token")?.map(|(text, _)| Token(text));
        Ok(Self { address, token, syntax: source.into_syntax() })
    }
}

/// The name of the admin API's socket in a folder that servers of several configurations share: the same for each way to name `file`.
pub fn admin_socket(file: &Path) -> String {
    let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let hash = digest::digest(&digest::SHA256, whole.as_os_str().as_bytes());
    let number = hash.as_ref().first_chunk().map(|first| u64::from_be_bytes(*first)).unwrap_or_default();
    format!("admin-{number:016x}.sock")
}

pub(crate) fn check(config: &Config, problems: &mut Vec<Problem>) {
    let Admin { listen, token } = &config.admin;
    let place = |key: &str| Place { file: 0, path: vec!["admin".into(), key.into()] };
    if let Some(AdminListen::Tcp(address)) = listen {
        if !address.ip().to_canonical().is_loopback() {
            let problem = config.problem(&place("listen"), format_args!("{address} can be reached from other machines"));
            problems
                .push(problem.with_hint("use unix:PATH or an address such as 127.0.0.1:2019, and a tunnel such as ssh -L from elsewhere"));
        }
        if token.is_none() && config.is_whole {
            let problem = config.problem(&place("listen"), "each user of this machine can reach this address");
            problems.push(problem.with_hint("add token = \"${file:admin-token}\", or use unix:PATH"));
        }
    }
    if token
        .as_ref()
        .is_some_and(|token| token.0.chars().count() < TOKEN_CHARACTERS || !token.0.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        let problem = config.problem(&place("token"), "the token could be guessed, or cannot be sent in a header field");
        problems
            .push(problem.with_hint(format_args!("take {TOKEN_CHARACTERS} or more letters and digits, as `openssl rand -hex 16` gives")));
    }
}
