//! Requests to the emulator's thread, and what it works with.

use std::os::fd::OwnedFd;
use std::sync::mpsc;

#[derive(Debug)]
pub(super) enum Request {
    /// Answered once the profile applies to packets.
    GoLive(mpsc::Sender<()>),
    /// Answered once the profile restarts: with the client's next flow, or immediately.
    Start(ClockStart, mpsc::Sender<Result<(), StartRefused>>),
    /// Answered once lateness is no longer counted, until the next start.
    FreezeLateness(mpsc::Sender<()>),
    Stop,
}

/// Reason why the profile cannot restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StartRefused {
    /// Programs have seen the change, and a browser treats it as another network: no fresh link
    /// begins like that.
    #[error(
        "the profile has changed the client's address already: start before that, or use a link \
            for each load"
    )]
    ClientAddressChanged,
}

/// Definition of time zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClockStart {
    /// When the client sends the first packet of a flow that the link has not seen yet.
    NextFlow,
    /// Immediately, whichever side sends first.
    Now,
}

/// The two TUN devices, and the channel to the thread that changes the client's address.
#[derive(Debug)]
pub(crate) struct Devices {
    pub(crate) near: OwnedFd,
    pub(crate) far: OwnedFd,
    /// Receives the number of the change, from 1.
    pub(crate) address_changes: Option<mpsc::Sender<usize>>,
}
