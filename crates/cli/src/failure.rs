//! Failures of the program: one line that says what to do, and an exit code.

use std::fmt;
use std::process::ExitCode;

/// The documented exit codes, from `sysexits.h` where it has one.
pub(crate) const EXIT_CODES: &str = "Exit codes:
   0  success
   2  invalid command line
  65  an input is malformed: a certificate, a key, a profile
  66  an input is missing or unreadable: a folder, a certificate, a file to send
  68  the host name cannot be resolved
  69  a service is unavailable: the port is in use, the server cannot be reached
  70  internal error; please report it
  73  the output cannot be written
  75  timed out
  76  communication with the server failed: TLS, trust, protocol
  77  permission denied";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Usage = 2,
    Malformed = 65,
    Missing = 66,
    UnknownHost = 68,
    Unavailable = 69,
    Internal = 70,
    Output = 73,
    TimedOut = 75,
    Protocol = 76,
    Permission = 77,
}

/// A failure to report. The message says what is wrong; the hint says what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), hint: None }
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Combines two failures into one. The exit code is that of the first; a hint that both have is
    /// given once.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        let hint = self
            .hint
            .take_if(|hint| other.hint.as_ref() != Some(hint))
            .map_or_else(String::new, |hint| format!("; {hint}"));
        self.message = format!("{}{hint}; {}", self.message, other.message);
        self.hint = other.hint;
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}
