//! HTTP/2 with clients, on top of h2.

mod exchange;
mod field_blocks;
mod frame_watch;
mod frames;
mod linger;
mod priority_signals;
mod pump;
mod send_buffer;
mod serve;
mod token_bucket;

pub(crate) use exchange::Http2Exchange;
pub(crate) use field_blocks::CheckedFieldBlocks;
pub(crate) use linger::Http2BodyLink;
pub(crate) use pump::pump;
pub(crate) use send_buffer::{BufferedBytes, SendBuffer};
pub(crate) use serve::serve;
