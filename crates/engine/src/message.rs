//! The request and response model of the three protocols.

mod peer;
mod request;
mod response;

pub use peer::{Peer, Protocol};
pub use request::Request;
pub use response::Response;
