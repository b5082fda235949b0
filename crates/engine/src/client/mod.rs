//! Connections to servers, over the three protocols.

mod connect;
mod connection;
mod error;
mod exchange;
mod failure;
mod http1;
mod request;
mod response;
mod slots;
mod stats;
mod tls;
mod unix;
mod upgrade;
mod upload;

pub use connect::{ConnectTimings, Connector, Target};
pub use connection::Connection;
pub(crate) use connection::{Observer, OnQueue};
pub use error::{Error, Remote};
pub(crate) use http1::ResponseContent;
pub(crate) use request::{for_http1, frame};
pub(crate) use slots::Slot;
pub(crate) use stats::StatsSink;
pub use stats::{StatsProbe, TransportStats};
pub use tls::Resumption;
