//! QPACK (RFC 9204): encodes and decodes HTTP/3 field sections, with the Huffman code of RFC 7541.
//!
//! The crate uses nothing of QUIC except stream IDs, and no clocks or sockets: bytes in, bytes out.
//! Start with [`Encoder`] and [`Decoder`]; a decoded section is a [`FieldSection`].
//!
//! ```
//! use bytes::BytesMut;
//! use pronghorn_qpack::{Decoded, Decoder, Encoder, FieldLine, FieldSection};
//!
//! let mut decoder = Decoder::with_table(4096, 16);
//! let mut encoder = Encoder::new();
//! encoder.set_peer_settings(decoder.max_table_capacity(), decoder.max_blocked_streams());
//!
//! let lines = [FieldLine::new(b":method", b"GET"), FieldLine::new(b"user-agent", b"pronghorn")];
//! let mut section = BytesMut::new();
//! encoder.encode(0, lines, &mut section);
//!
//! // The section is here before the insertion that it refers to.
//! let mut decoded = FieldSection::new();
//! assert_eq!(decoder.decode(0, &section, 1000, &mut decoded)?, Decoded::Blocked);
//! decoder.handle_encoder_stream(&encoder.take_instructions().unwrap())?;
//! assert_eq!(decoder.poll_unblocked(), Some(0));
//! assert_eq!(decoder.decode(0, &section, 1000, &mut decoded)?, Decoded::Complete);
//! assert_eq!(decoded.get(1).unwrap().value, b"pronghorn");
//! encoder.handle_decoder_stream(&decoder.take_instructions().unwrap())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod field;
pub mod huffman;
pub mod integer;
mod prefix;
mod ready_line;
pub mod static_table;

pub use decoder::{Decoded, Decoder};
pub use encoder::{Encoder, SectionTooLarge};
pub use error::{DecoderStreamError, DecompressionError, EncoderStreamError};
pub use field::{FieldLine, FieldSection, Iter, SectionLine};
pub use ready_line::{OutgoingLine, ReadyLine};
