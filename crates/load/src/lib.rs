//! A load generator for HTTP/1.1, 2 and 3, and for WebSocket over them, on the engine's client side: as fast as the server answers, or at a fixed rate.
//!
//! At a fixed rate a request's latency counts from when it was due, so that a server that stalls cannot hide the requests that it
//! kept from being sent. The generator measures itself too, and says when it was the bottleneck. It never prints and holds memory
//! for the connections and streams of its [`Plan`], not for the requests.
//!
//! Start with [`Plan`] and [`run`]; a [`Report`] is what comes out, as data and as the JSON that `docs/load.md` describes.

#![forbid(unsafe_code)]

mod cpu;
mod error;
mod exchange;
mod generator;
mod lane;
mod plan;
mod report;
mod run;
mod schedule;
mod signal;
mod socket;
mod tally;
mod upload;
mod watch;

pub use error::Error;
pub use plan::{ConnectionUse, MAX_CONNECTIONS, MAX_MESSAGE_BYTES, MAX_STREAMS, Plan, PlanError, Upload};
pub use report::{
    Body, Connections, Errors, Latencies, Latency, PlanReport, Report, Requests, SCHEMA, StatusClasses, Thread, Transport, Warning,
    WebSockets,
};
pub use run::{Interrupt, run};

#[cfg(test)]
mod tests;
