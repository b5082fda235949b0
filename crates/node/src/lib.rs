//! The engine inside Node.js: a Node-API addon that converts and forwards, for the npm package in
//! `packages/pronghorn`.
//!
//! Each [`listener::Listener`] is one of the engine's workers behind one `uv_poll` handle
//! ([`poll`]), on the thread whose JavaScript answers its requests. All events of a worker's turn
//! go to JavaScript in one call: events and responses are encoded as numbers in shared memory
//! ([`shared_buffers`]). The addon contains no protocol logic and no public interface: the
//! package's JavaScript creates objects, strings and errors. Start with [`addon::Addon`] and
//! `packages/pronghorn/lib/native.js`.
//!
//! `unsafe` is used only in [`js`], [`module`] and [`poll_thread`] (Node-API), [`poll_libuv`]
//! (libuv) and [`shared_buffers`] (memory).

mod addon;
mod admission;
mod api;
mod app;
mod certificates;
mod clients;
mod declarative;
mod events;
mod exchange;
mod head;
mod js;
mod listener;
mod module;
mod ops;
mod pipe;
mod poll;
mod poll_libuv;
mod poll_thread;
mod ports;
mod readable;
mod router;
mod session;
mod shared_buffers;
mod socket;
mod tunnel;
