//! QPACK (RFC 9204): field sections of HTTP/3 to bytes and back, with the Huffman code of RFC 7541.
//! It knows nothing of QUIC, of streams beyond their number, of clocks or sockets: bytes in, bytes out.
//! Start with [`Encoder`] and [`Decoder`]; a decoded section is a [`FieldSection`].
//!
//! Field sections refer to the static table only. The instructions of the peer's encoder and decoder streams
//! are parsed and checked all the same, because breaking their rules is an error of the connection.

#![forbid(unsafe_code)]

mod decoder;
mod encoder;
mod error;
mod field;
pub mod huffman;
pub mod integer;
pub mod static_table;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;
pub use error::{DecoderStreamError, DecompressionError, EncoderStreamError};
pub use field::{FieldLine, FieldSection, Iter, SectionLine};
