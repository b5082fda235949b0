//! A load generator for HTTP/1.1, 2 and 3, and for WebSocket over them, on the engine's client
//! side: as fast as the server answers, or at a fixed rate.
//!
//! At a fixed rate, latency is measured from when a request was due, so that a stalled server
//! cannot hide the requests that it delayed. The generator measures itself too, and reports when it
//! was the bottleneck. It never prints, and its memory depends on the connections and streams of
//! its [`Plan`], not on the number of requests.
//!
//! Start with [`Plan`] and [`run`]; the result is a [`Report`], as data and as the JSON that
//! `docs/load.md` describes.

#![forbid(unsafe_code)]

mod cpu;
mod deadlines;
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

pub use error::Error;
pub use plan::{
    ConnectionUse, MAX_CONNECTIONS, MAX_MESSAGE_BYTES, MAX_STREAMS, Plan, PlanError, Upload,
};
pub use report::{
    Body, Connections, Errors, Latencies, Latency, PlanReport, Report, Requests, SCHEMA,
    StatusClasses, Thread, Transport, Warning, WebSockets,
};
pub use run::{Interrupt, run};

#[cfg(test)]
mod tests;
