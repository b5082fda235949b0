//! FastCGI (FastCGI Specification 1.0) for who asks applications, sans-IO: a request in, bytes out; bytes in, a response out.
//!
//! It opens no sockets and reads no clock. A connection has one request, which is what applications serve: [`request`] writes it,
//! [`Decoder`] reads what comes back, and [`Head`] the beginning of that, which is a response of CGI (RFC 3875).
//!
//! ```
//! use bytes::BytesMut;
//! use pronghorn_fastcgi::{Decoder, Event, Head, Parameters, request};
//!
//! let mut parameters = Parameters::default();
//! parameters.put("SCRIPT_FILENAME", "/srv/www/index.php");
//! let mut out = BytesMut::new();
//! request::begin(&mut out);
//! request::parameters(&mut out, &parameters);
//! request::content(&mut out, b"");
//!
//! let (mut decoder, mut head) = (Decoder::default(), Head::default());
//! decoder.buffer().extend_from_slice(b"\x01\x06\0\x01\0\x12\0\0Status: 404\nA: b\n\n");
//! let Some(Event::Output(piece)) = decoder.read().unwrap() else { panic!("there is output") };
//! assert_eq!(head.push(&piece).unwrap().unwrap().status(), 404);
//! ```

#![forbid(unsafe_code)]

mod decoder;
mod head;
mod parameters;
pub mod request;

pub use decoder::{Decoder, Ended, Event, RecordError};
pub use head::{Head, HeadError, MAX_HEAD_BYTES, MAX_HEAD_LINES};
pub use parameters::Parameters;

/// The only version there is.
const VERSION: u8 = 1;
/// There is one request on a connection, and this is its number.
const REQUEST: u16 = 1;

/// Types of records.
mod kind {
    pub(crate) const BEGIN_REQUEST: u8 = 1;
    pub(crate) const END_REQUEST: u8 = 3;
    pub(crate) const PARAMS: u8 = 4;
    pub(crate) const STDIN: u8 = 5;
    pub(crate) const STDOUT: u8 = 6;
    pub(crate) const STDERR: u8 = 7;
}
