//! Connections to servers, over the three protocols.

mod client_request;
mod connect;
mod connection;
mod error;
mod exchange;
mod failure;
mod http1;
mod observer;
mod request;
mod response;
mod slots;
mod stats;
mod timings;
mod tls;
mod unix;
mod upgrade;
mod upload;

pub use client_request::ClientRequest;
pub use connect::{Connector, Target};
pub use connection::Connection;
pub use error::{Error, Remote};
pub(crate) use http1::ResponseContent;
pub(crate) use observer::Observer;
pub(crate) use request::{for_http1, frame};
pub(crate) use slots::Slot;
pub use stats::StatsProbe;
pub use timings::ConnectTimings;
pub use tls::Resumption;
