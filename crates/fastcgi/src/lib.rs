//! The web server's side of FastCGI (FastCGI Specification 1.0), sans-IO: encodes a request to
//! bytes, and decodes the application's bytes to a response.
//!
//! It opens no sockets and reads no clock. A connection carries one request, which is all that
//! applications support: [`request`] encodes it, [`Decoder`] decodes the application's records, and
//! [`Head`] parses the response head in CGI form (RFC 3875).
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
mod record;
pub mod request;

pub use decoder::{Decoder, Ended, Event, RecordError};
pub use head::{Head, HeadError, MAX_HEAD_BYTES, MAX_HEAD_LINES};
pub use parameters::Parameters;
