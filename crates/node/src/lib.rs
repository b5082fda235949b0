//! The engine inside Node.js: a Node-API addon that converts and forwards, for the npm package in `packages/pronghorn`.
//!
//! Each [`listening::Listening`] is one of the engine's workers behind one `uv_poll` handle ([`poll`]), on the thread whose JavaScript
//! answers its requests. What a round of the worker brings goes to JavaScript in one call: the events stand as numbers in memory that both sides see
//! ([`shared`]), and so does what JavaScript answers. It holds no protocol logic, and nothing of the public interface: objects, strings
//! and errors are made by the package's JavaScript. Start with [`addon::Addon`] and `packages/pronghorn/lib/native.js`.
//!
//! `unsafe` stands in [`js`] and [`thread`] (Node-API), [`uv`] (libuv) and [`shared`] (memory) alone.

mod addon;
mod api;
mod certificates;
mod clients;
mod declarative;
mod exchange;
mod head;
mod js;
mod listening;
mod ops;
mod pipe;
mod poll;
mod ports;
mod router;
mod session;
mod shared;
mod socket;
mod thread;
mod tunnel;
mod uv;
