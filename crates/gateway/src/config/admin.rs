//! The admin API's address and token.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use aws_lc_rs::digest;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problem::Problem;
use super::source::PartialFile;
use super::values::string_type;

/// The table `[admin]`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(default)]
pub struct Admin {
    /// Address of the admin API: `unix:PATH`, a loopback address, or `off`. If left out, it is the
    /// socket `admin.sock` in `state_dir` of `[server]`; without `state_dir`, a socket in
    /// `$XDG_STATE_HOME/pronghorn` (`~/.local/state/pronghorn`) named after the configuration file.
    pub listen: Option<AdminListen>,
    /// Token that requests must send as `Authorization: Bearer TOKEN`; required with a loopback
    /// address.
    #[schemars(with = "Option<String>")]
    pub token: Option<Token>,
}

/// The address of the admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// The admin API is off.
    Off,
    /// A Unix socket that only its owner can access.
    Unix(PathBuf),
    /// A loopback address.
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
            format!(
                "invalid admin API address {text:?}: use unix:/run/pronghorn/admin.sock, \
                    127.0.0.1:2019 or off"
            )
        })
    }
}
string_type!(
    AdminListen,
    "admin address",
    "unix:PATH for a socket that only its owner can access, a loopback address, or off.",
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

/// A secret, never shown in output.
#[derive(Clone, Deserialize, PartialEq, Eq)]
pub struct Token(pub(crate) String);

impl Token {
    /// Returns the secret, for code that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares with `given` in constant time: the time taken reveals only the token's length.
    pub fn is(&self, given: &[u8]) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), given).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// `whole` resolves a path of `listen` relative to the configuration's folder.
pub(super) fn address(
    listen: Option<AdminListen>,
    state_dir: Option<PathBuf>,
    whole: impl Fn(&Path) -> PathBuf,
) -> Option<AdminListen> {
    match listen {
        Some(AdminListen::Unix(path)) => Some(AdminListen::Unix(whole(&path))),
        Some(listen) => Some(listen),
        None => state_dir.map(|folder| AdminListen::Unix(folder.join("admin.sock"))),
    }
}

/// Access to a running server's admin API, as its configuration file gives it.
///
/// The rest of the file is ignored: it may be half edited, or refer to variables that only the
/// server's environment has.
#[derive(Debug)]
pub struct AdminAccess {
    /// Address of the admin API; `None` if none is configured.
    pub address: Option<AdminListen>,
    /// Token that requests must send.
    pub token: Option<Token>,
    /// First syntax error, which may make the rest of the file unreliable.
    pub syntax: Option<Problem>,
}

impl AdminAccess {
    /// Reads `file`, with this process's environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the file or its admin API settings cannot be read.
    pub fn read(file: &Path) -> Result<Self, Problem> {
        Self::read_with(file, &|name| std::env::var(name).ok())
    }

    pub(crate) fn read_with(
        file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        let source = PartialFile::read(file, environment)?;
        let listen = source.text("admin", "listen")?;
        let listen = listen
            .map(|(text, span)| text.parse().map_err(|error: String| source.problem(&span, error)))
            .transpose()?;
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

/// Returns the name of the admin API's socket in a folder shared by servers with different
/// configurations. It is the same for every path that leads to `file`.
pub fn admin_socket(file: &Path) -> String {
    let whole = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let hash = digest::digest(&digest::SHA256, whole.as_os_str().as_bytes());
    let number =
        hash.as_ref().first_chunk().map(|first| u64::from_be_bytes(*first)).unwrap_or_default();
    format!("admin-{number:016x}.sock")
}
