//! What a worker can be told.

use std::fmt;
use std::str::FromStr;

use crate::limits::Limits;

use crate::qlog::Qlog;

/// A congestion controller, for QUIC and TCP alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// New Reno (RFC 9002, section 7; RFC 6582).
    NewReno,
    /// BBR, as far as the transport has it.
    Bbr,
}

impl Congestion {
    /// All controllers, for messages and help texts.
    pub const ALL: [Self; 3] = [Self::Cubic, Self::NewReno, Self::Bbr];

    /// The name that the Linux kernel gives to its controller for TCP.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Bbr => "bbr",
        }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
            Self::Bbr => "bbr",
        })
    }
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|congestion| congestion.to_string() == name)
            .ok_or_else(|| format!("unknown congestion controller {name:?}: cubic, newreno or bbr"))
    }
}

/// Settings of one worker. The default is safe on the open internet.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What peers may take.
    pub limits: Limits,
    /// The controller for QUIC, and for TCP on sockets that accept it. Default CUBIC.
    pub congestion: Congestion,
    /// Where each QUIC connection writes what happens on it, if anywhere. Default: nowhere.
    pub qlog: Option<Qlog>,
    /// What one turn of a worker may do before it returns to its host.
    pub budget: Budget,
}

/// How much one turn does at the most. Small numbers share the thread more fairly, large ones cost fewer system calls.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// TCP connections accepted. Default 32.
    pub accepts: usize,
    /// Batches of datagrams received; a batch is what one system call returns. Default 4.
    pub receive_batches: usize,
    /// Polls of futures. Default 512.
    pub polls: usize,
    /// System calls that send datagrams. Default 512.
    pub sends: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { accepts: 32, receive_batches: 4, polls: 512, sends: 512 }
    }
}
